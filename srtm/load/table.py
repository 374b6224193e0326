"""A load result for people."""

from dataclasses import fields

from rich.console import Group
from rich.text import Text

from srtm.limits.slo import SLO
from srtm.load.latency import PERCENTILES, Latencies
from srtm.load.result import LoadResult
from srtm.load.share import Counts, Share
from srtm.text.terminal import Column, Table


def render(result: LoadResult, slo: SLO | None = None) -> Group:
    """Counts and latencies, in total and by broker; the generator's own cost; the SLO's verdict."""
    shares = {"total": result.total}
    if len(result.brokers) > 1:
        shares |= result.brokers
    parts: list[Table | Text] = [
        _counts(shares),
        Text("latency from the intended send time"),
        _latencies(shares, result.send_lag),
    ]
    cpu = result.account.cpu_seconds
    parts.append(Text(f"generator: {cpu:.2f} s CPU, {result.cpu_us_per_message:.1f} us a message"))
    if result.account.moves:
        parts.append(Text(f"followed: {len(result.account.moves):,} moves of publishers"))
    if slo is not None:
        verdict = "met" if result.meets(slo) else "missed"
        late, allowed = 100 * result.late_share(slo), 100 * slo.allowed_late_share
        parts.append(
            Text(f"SLO {slo}: {verdict}; {late:.3g} % late or never received, {allowed:.3g} % may")
        )
    lag = result.send_lag.percentile_ms(99) if result.send_lag.count else 0.0
    if lag > _NOTABLE_LAG_MS or (slo and lag > _NOTABLE_LAG * slo.target_seconds * 1e3):
        parts.append(
            Text(
                f"the generator itself was {lag:,.1f} ms late with sending at p99: latencies are "
                "not the broker's alone",
                "yellow",
            )
        )
    return Group(*parts)


_NOTABLE_LAG = 0.2
"""of the SLO's target"""
_NOTABLE_LAG_MS = 20.0


def _counts(shares: dict[str, Share]) -> Table:
    """A row for the total and for each broker."""
    rates = ("offered", "acknowledged", "received")
    counts = [
        field.name
        for field in fields(Counts)
        if field.name == "lost" or any(getattr(each.counts, field.name) for each in shares.values())
    ]
    table = Table(
        Column("messages", text=True),
        *(Column(f"{name}/s", 2 + number) for number, name in enumerate(rates)),
        *(Column(name, _RANKS.get(name, 1)) for name in counts),
    )
    for title, share in shares.items():
        table.add(
            title,
            *(f"{getattr(share.rates, name):,.0f}" for name in rates),
            *(f"{getattr(share.counts, name):,}" for name in counts),
        )
    return table


_RANKS = {"planned": 6, "sent": 5, "acknowledged": 0, "received": 0, "lost": 0}


def _latencies(shares: dict[str, Share], send_lag: Latencies) -> Table:
    """The table of latencies, all from the intended send time; the send lag is the generator's own
    part."""
    columns = (*PERCENTILES, "max", "mean")
    ranks = {"p99": 0, "p50": 0, "max": 1, "mean": 2}
    table = Table(
        Column("latency", text=True),
        *(Column(f"{name} ms", ranks.get(name, 3)) for name in columns),
    )
    rows = {}
    for title, share in shares.items():
        suffix = "" if len(shares) == 1 else f" {title}"
        rows["to receipt" + suffix] = share.end_to_end
        rows["to OK" + suffix] = share.publish
    rows["to write (lag)"] = send_lag
    for title, latencies in rows.items():
        figures = latencies.document()
        if figures is not None:
            table.add(title, *(f"{figures[f'{name}_ms']:,.3f}" for name in columns))
    return table
