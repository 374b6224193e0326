"""`srtm demo`: the flow, from starting brokers to the comparison."""

import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from distributor.remote import Remote
from srtm.correlation.session import require_spark
from srtm.demo.kafka import Carried, carry, left_out, open_channels
from srtm.demo.load import (
    GROUP,
    HEADROOM,
    PASS_AT_ONCE,
    PUBLISHERS,
    RATE,
    TOPIC,
    fit_contract,
    publishers,
    unsplit_waits,
)
from srtm.demo.measure import Outcome, measure, noise, register
from srtm.demo.picture import draw
from srtm.demo.shown import PERCENTILE, as_table, meaning
from srtm.deploy.up import running
from srtm.deployment.document import Deployment
from srtm.limits.contract import Contract
from srtm.limits.slo import SLO
from srtm.text.address import free_addresses
from srtm.text.errors import PLOTS, Exit
from srtm.text.terminal import show

TRACE = "trace"
"""folder of the gateways' trace, in the deployment's"""
BROKERS = 4
CAPACITY = int(0.6 * PUBLISHERS * RATE)
"""messages/s of each broker, so that two of them hold the load"""
_NOISE_FACTOR = 3.0
"""The SLO's target over this machine's own p99 without any contract: what is over it is the
contract's doing."""
_LEASE = "2s"
"""a broker that a placement leaves has a rest of its share for so long; the default is for networks
that break"""


@click.command("demo")
@click.option("--seconds", default=17.0, help="seconds of load on each placement [default: 17]")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("out/demo.png"),
    help="file for the plot [default: out/demo.png]",
)
@click.option(
    "--infer",
    is_flag=True,
    help="Let Spark find the rooms in a trace (needs Java and the extra spark).",
)
def demo(seconds: float, out: Path, infer: bool) -> None:
    """Deploy four real brokers, place one topic's publishers by lb and by srtm, and compare. Then
    the bridge brings all messages to a real Kafka.

    The load, its send times and the contract (r, b) are the same for both. lb uses all brokers and
    ignores which publishers send together; srtm uses as few brokers as hold the load, and spreads
    each room over them.

    With --infer three placements on equally few brokers are compared: without groups; with the
    groups that Spark finds in the trace of that first load, proposed and accepted as by srtm
    correlate propose and srtm placement groups; and with the rooms as users name them.
    """
    console = Console()
    if infer:
        three_ways, gain_kept = _inference()
    with tempfile.TemporaryDirectory(prefix="srtm-demo-") as folder:
        console.print(
            f"starting {BROKERS} brokers of {CAPACITY} msg/s (nsqd and a gateway each) and the "
            "distributor"
        )
        with running(spec(folder, infer), say=console.print) as up:
            fit = fit_contract(seconds)
            own = noise(up.brokers)
            slo = SLO(PERCENTILE, _round_up(own * _NOISE_FACTOR))
            contract = Contract(topic=TOPIC, rate=fit.rate, burst=float(fit.burst), slo=slo)
            console.print(
                f"contract: r = {contract.rate:,.0f}/s ({HEADROOM:g} x the load), "
                f"b = {contract.burst:g} (in one bucket {PASS_AT_ONCE:.1%} of the messages pass at "
                f"once); without it p99 is {own * 1e3:.1f} ms here, so the SLO is {slo}"
            )
            assert up.deployment.distributor is not None
            remote = Remote(up.deployment.distributor.endpoint())
            no_kafka = left_out()
            if not no_kafka:
                open_channels(up.brokers)
            if infer:
                trace = Path(folder) / TRACE
                shown = three_ways(up.deployment, remote, contract, seconds, trace, console.print)
            else:
                shown = _two_ways(up.deployment, remote, contract, seconds, console)
            carried: Carried | None = None
            if not no_kafka:
                console.print("the bridge brings all of these messages to a Kafka that starts now")
                carried = carry(up.brokers, sum(len(each.measured) for each in shown))
    show(as_table(shown, unsplit_waits(contract, seconds), slo))
    console.print(gain_kept(*shown) if infer else meaning(shown[0], shown[1], slo, own))
    console.print(f"no Kafka in this run: {no_kafka}" if carried is None else f"{carried}.")
    if draw(shown, contract, out):
        console.print(f"plot: {out}")
    else:
        console.print(f"no plot: matplotlib is not installed; {PLOTS}")
    lost = carried is not None and carried.in_kafka < carried.sent
    if lost or any(outcome.latency.count == 0 for outcome in shown):
        raise click.exceptions.Exit(Exit.FAILED)


def _inference() -> tuple[Any, Any]:
    """Raises UnavailableError without Spark, before any broker is started."""
    require_spark()
    from srtm.demo.infer import gain_kept, three_ways

    return three_ways, gain_kept


def _two_ways(
    deployment: Deployment, remote: Remote, contract: Contract, seconds: float, console: Console
) -> list[Outcome]:
    register(remote, contract, publishers())
    assert contract.slo is not None
    outcomes = []
    for policy in ("lb", "srtm"):
        console.print(
            f"{PUBLISHERS} publishers in rooms of {GROUP} placed by {policy}: {seconds:g} s of load"
        )
        outcomes.append(measure(deployment, remote, policy, seconds, contract.slo))
    return outcomes


def spec(folder: str, traced: bool) -> dict[str, Any]:
    trace = {"trace-dir": str(Path(folder) / TRACE)} if traced else {}
    ports = [str(each) for each in free_addresses(2 * BROKERS + 1)]
    return {
        "deployment": {"name": "demo", "data-path": folder},
        "distributor": {"http-address": ports.pop(), "lease-duration": _LEASE},
        "broker": [
            {"tcp-address": tcp, "http-address": http, "capacity": CAPACITY, **trace}
            for tcp, http in zip(ports[::2], ports[1::2], strict=True)
        ],
    }


def _round_up(seconds: float) -> float:
    """Round up to the next whole millisecond: an SLO that a person would write."""
    return float(np.ceil(seconds * 1e3) / 1e3)
