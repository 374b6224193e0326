"""`srtm demo`: real brokers on this machine, one topic over 1, 2 and 3 of them, SLO kept or not."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from srtm.contract import Limit
from srtm.deploy import Broker, free_addresses, running
from srtm.deploy.admin import put_topic, topics_of
from srtm.errors import Exit
from srtm.load import LoadSettings, run_load
from srtm.load.latency import Latencies
from srtm.load.schedule import Ints, build_schedule
from srtm.queueing import BurstFit, Floats, smallest_burst, split_token_waits
from srtm.slo import SLO

BROKERS = 3
PUBLISHERS = 100
RATE = 10.0  # messages/s of each publisher
GROUP = 5  # publishers that send at the same instants
_PERCENTILE = 0.99
_NOISE_SECONDS = 5.0
_NOISE_FACTOR = 3.0
"""The SLO's target over this machine's own p99 without any contract: what is over it is the
contract's doing."""


@dataclass(frozen=True)
class Outcome:
    """The topic over `brokers` of them. Waits in seconds, p99 that of the worst broker: `measured`
    by the gateways, `predicted` from the same send times through buckets on paper."""

    brokers: int
    latency: Latencies
    late_share: float
    measured_wait: float
    measured_wait_p99: float
    predicted_wait: float
    predicted_wait_p99: float


def settings_for(brokers: list[Broker], topic: str, seconds: float, **changes: Any) -> LoadSettings:
    """The demo's load: Poisson publishers in groups that send together. A group stays together on
    one broker, which is what a placement that is blind to correlation may do."""
    addresses = tuple(str(broker.tcp_address) for broker in brokers)
    groups = PUBLISHERS // GROUP
    values: dict[str, Any] = {
        "publishers": PUBLISHERS,
        "rate_per_second": RATE,
        "group_size": GROUP,
        "duration_seconds": seconds,
        "warmup_seconds": 1.0,
        "assignment": tuple(
            publisher // GROUP * len(brokers) // groups for publisher in range(PUBLISHERS)
        ),
        **changes,
    }
    return LoadSettings(topic, addresses, addresses, channel="demo#ephemeral", **values)


def fit_contract(settings: LoadSettings) -> BurstFit:
    """(r, b) from the load itself, as SRTM section 6 does: r = 1.1 x rate and the smallest b."""
    return smallest_burst(build_schedule(settings).offsets_ns / 1e9)


def predicted_waits(settings: LoadSettings, limit: Limit) -> tuple[Floats, Ints]:
    """Token wait in seconds of each scheduled message with the contract split evenly, and the
    broker that it goes to."""
    schedule = build_schedule(settings)
    count = len(settings.publish_addresses)
    share = limit.share(count)
    assert settings.assignment is not None
    on_broker = np.array(settings.assignment)[schedule.publishers]
    arrivals = schedule.offsets_ns / 1e9
    waits = split_token_waits(arrivals, on_broker, [share.rate] * count, [share.burst] * count)
    return waits, on_broker


def measure(brokers: list[Broker], limit: Limit, seconds: float, slo: SLO) -> Outcome:
    """One topic of its own over `brokers`, under load."""
    count = len(brokers)
    topic = f"demo-{count}"
    for broker in brokers:
        put_topic(broker, topic, limit.share(count))
    settings = settings_for(brokers, topic, seconds)
    result = run_load(settings)
    assert result.total.end_to_end is not None
    waits = [topics_of(broker)[topic]["token_wait"] for broker in brokers]
    messages = sum(wait["count"] for wait in waits)
    predicted, on_broker = predicted_waits(settings, limit)
    return Outcome(
        count,
        result.total.end_to_end,
        result.late_share(slo),
        sum((wait["mean"] or 0.0) * wait["count"] for wait in waits) / max(messages, 1),
        max(wait["p99"] or 0.0 for wait in waits),
        float(predicted.mean()),
        max(float(np.quantile(predicted[on_broker == k], _PERCENTILE)) for k in range(count)),
    )


def noise(brokers: list[Broker]) -> float:
    """p99 end to end of the same load without a contract, in seconds: the machine's own."""
    result = run_load(settings_for(brokers, "demo-noise", _NOISE_SECONDS))
    assert result.total.end_to_end is not None
    return result.total.end_to_end.percentile_ms(99) / 1e3


def as_table(outcomes: list[Outcome], slo: SLO) -> Table:
    table = Table(
        title=f"{PUBLISHERS} publishers x {RATE:g} msg/s in groups of {GROUP}, SLO {slo}; in ms",
        box=box.SIMPLE,
        padding=(0, 0),
    )
    for name in ("brokers", "p50", "p95", "p99", "late", "SLO"):
        table.add_column(name, justify="right")
    for name in ("token wait\nmean", "\npredicted", "token wait\np99", "\npredicted"):
        table.add_column(name, justify="right")
    for outcome in outcomes:
        percentile = outcome.latency.percentile_ms
        met = outcome.late_share <= slo.allowed_late_share
        table.add_row(
            str(outcome.brokers),
            *(f"{percentile(p):.2f}" for p in (50, 95, 99)),
            f"{outcome.late_share:.2%}",
            "[green]met[/]" if met else "[red]missed[/]",
            f"{outcome.measured_wait * 1e3:.3f}",
            f"{outcome.predicted_wait * 1e3:.3f}",
            f"{outcome.measured_wait_p99 * 1e3:.2f}",
            f"{outcome.predicted_wait_p99 * 1e3:.2f}",
        )
    return table


def plot(outcomes: list[Outcome], slo: SLO, file: Path) -> bool:
    """One picture of the table; False where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = [str(outcome.brokers) for outcome in outcomes]
    for p in (50, 95, 99):
        left.plot(names, [o.latency.percentile_ms(p) for o in outcomes], marker="o", label=f"p{p}")
    left.axhline(slo.target_seconds * 1e3, color="black", linestyle="--", label=f"SLO {slo}")
    left.set(title="End to end", xlabel="brokers", ylabel="ms", ylim=(0, None))
    left.legend()
    places = np.arange(len(names))
    for shift, label, values in (
        (-0.2, "measured", [o.measured_wait * 1e3 for o in outcomes]),
        (0.2, "predicted", [o.predicted_wait * 1e3 for o in outcomes]),
    ):
        right.bar(places + shift, values, 0.4, label=label)
    right.set_xticks(places, names)
    right.set(title="Mean token wait: the price of splitting", xlabel="brokers", ylabel="ms")
    right.legend()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    return True


@click.command("demo")
@click.option("--seconds", default=15.0, help="load on each number of brokers [default: 15]")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("out/demo.png"),
    help="the plot [default: out/demo.png]",
)
def demo(seconds: float, out: Path) -> None:
    """Deploy three real brokers, put one topic's load over 1, 2 and 3 of them, and compare.

    The contract (r, b) is split evenly each time. The load is the same, and one broker could carry
    it: what latency grows is the waiting for tokens that a split bucket costs.
    """
    console = Console()
    with tempfile.TemporaryDirectory(prefix="srtm-demo-") as folder:
        ports = free_addresses(2 * BROKERS)
        spec = {
            "deployment": {"name": "demo", "data-path": folder},
            "distributor": False,
            "broker": [
                {"tcp-address": str(ports[2 * k]), "http-address": str(ports[2 * k + 1])}
                for k in range(BROKERS)
            ],
        }
        console.print(f"starting {BROKERS} brokers: nsqd and a gateway each")
        with running(spec, say=console.print) as deployment:
            brokers = list(deployment.brokers)
            fit = fit_contract(settings_for(brokers[:1], "demo", seconds))
            own = noise(brokers)
            slo = SLO(_PERCENTILE, _round_up(own * _NOISE_FACTOR))
            limit = Limit(rate=fit.rate, burst=float(fit.proposed_burst), slo=slo)
            console.print(
                f"contract: r = {limit.rate:,.0f}/s (1.1 x the load), b = {limit.burst:g} (twice "
                f"the smallest b with no wait at p99); without it p99 is "
                f"{own * 1e3:.1f} ms here, so the SLO is {slo}"
            )
            outcomes = []
            for count in range(1, BROKERS + 1):
                console.print(f"{count} broker{'s' if count > 1 else ''}: {seconds:g} s of load")
                outcomes.append(measure(brokers[:count], limit, seconds, slo))
    console.print(as_table(outcomes, slo))
    if plot(outcomes, slo, out):
        console.print(f"plot: {out}")
    else:
        console.print("no plot: matplotlib is not installed (pip install 'srtm[plots]')")
    if any(outcome.latency.count == 0 for outcome in outcomes):
        raise click.exceptions.Exit(Exit.FAILED)


def _round_up(seconds: float) -> float:
    """To the next whole millisecond: an SLO that a person would write."""
    return float(np.ceil(seconds * 1e3) / 1e3)
