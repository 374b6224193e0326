"""A load result for people."""

from dataclasses import fields

from rich.box import SIMPLE
from rich.console import Group
from rich.table import Table
from rich.text import Text

from srtm.load.latency import PERCENTILES, Latencies
from srtm.load.result import LoadResult
from srtm.load.share import Counts, Share
from srtm.slo import SLO


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
    return Group(*parts)


def _counts(shares: dict[str, Share]) -> Table:
    table = Table("messages", box=SIMPLE)
    for title in shares:
        table.add_column(title, justify="right")
    for name in ("offered", "acknowledged", "received"):
        rates = (getattr(share.rates, name) for share in shares.values())
        table.add_row(f"{name} per second", *(f"{rate:,.0f}" for rate in rates))
    for field in fields(Counts):
        counts = [getattr(share.counts, field.name) for share in shares.values()]
        if any(counts) or field.name == "lost":
            table.add_row(field.name, *(f"{count:,}" for count in counts))
    return table


def _latencies(shares: dict[str, Share], send_lag: Latencies) -> Table:
    """All from the intended send time; the send lag is the generator's own part."""
    columns = (*PERCENTILES, "max", "mean")
    table = Table("ms", box=SIMPLE)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    rows = {}
    for title, share in shares.items():
        suffix = "" if len(shares) == 1 else f" {title}"
        rows["to receipt" + suffix] = share.end_to_end
        rows["to OK" + suffix] = share.publish
    rows["to write (lag)"] = send_lag
    for title, latencies in rows.items():
        figures = latencies.document()
        if figures is not None:
            table.add_row(title, *(f"{figures[f'{name}_ms']:.3f}" for name in columns))
    return table
