"""`srtm placement simulate`."""

from pathlib import Path

import click

from distributor.cli.offline import read_offline
from distributor.placement.policies import POLICIES
from distributor.remote import print_json
from distributor.simulator.offline import Simulated, simulated
from distributor.simulator.traffic import Sending
from srtm.load.settings import Arrivals
from srtm.options.model import parsed
from srtm.text.duration import parse_duration
from srtm.text.terminal import Column, Table, show
from srtm.text.words import counted, some

_DURATION = parsed(parse_duration)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--policy",
    "policies",
    type=click.Choice(list(POLICIES)),
    multiple=True,
    help="Policy to simulate; may be given more than once.  [default: all]",
)
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "periodic"]),
    default="poisson",
    show_default=True,
    help="Send times of each group: Poisson, or evenly spaced with a random phase.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Messages that a publisher sends at one instant.",
)
@click.option(
    "--jitter",
    metavar="DURATION",
    callback=_DURATION,
    default="0s",
    show_default=True,
    help="Spread the publishers of a key evenly over this time.",
)
@click.option(
    "--base",
    metavar="DURATION",
    callback=_DURATION,
    default="0s",
    show_default=True,
    help="Latency at an idle broker.",
)
@click.option(
    "--duration",
    metavar="DURATION",
    callback=_DURATION,
    default="60s",
    show_default=True,
    help="Time that is simulated.",
)
@click.option("--seed", default=1, show_default=True, help="Seed of all random choices.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def simulate(
    file: Path,
    policies: tuple[str, ...],
    arrivals: Arrivals,
    batch: int,
    jitter: float,
    base: float,
    duration: float,
    seed: int,
    as_json: bool,
) -> None:
    """Simulate the latencies that the topic of FILE would have under each policy; nothing is run.

    FILE has the form of srtm placement plan --offline. Publishers send at their rates; those with
    the same key send at the same instants. A broker serves one message after the other, just fast
    enough to hold its `capacity` of such batches within topic.slo, as srtm broker capacity measures
    it; the load that is `allocated` there arrives as Poisson messages. All policies get the same
    messages.

    \b
      srtm placement simulate plan.json --batch 10 --arrivals periodic
    """
    contract, brokers, publishers = read_offline(file).values()
    how = Sending(arrivals, batch, jitter)
    chosen = policies or tuple(POLICIES)
    found = simulated(chosen, contract, brokers, publishers, how, duration, seed, base)
    if as_json:
        print_json({"topic": contract.topic, "slo": str(contract.slo), "policies":
                    [each.document() for each in found]})  # fmt: skip
    else:
        show(_table(found))


def _table(found: list[Simulated]) -> Table:
    percentile = f"p{100 * found[0].slo.percentile:.6g}"
    table = Table(
        Column("policy", text=True),
        Column("brokers", 1),
        Column(f"{percentile} ms"),
        Column("at the worst broker ms", 2),
        Column("token wait ms", 3),
        Column("late"),
        Column(f"{found[0].slo}", sentence=True),
    )
    for each in found:
        seen, share = each.seen, each.slo.percentile
        table.add(
            each.placement.policy,
            str(len(each.placement.brokers)),
            f"{1e3 * seen.latency(share):.2f}",
            f"{1e3 * seen.worst(share):.2f}",
            f"{1e3 * seen.token_wait(share):.2f}",
            f"{seen.late_share(each.slo):.2%}",
            _verdict(each),
        )
    return table


def _verdict(found: Simulated) -> str:
    unplaced = found.placement.unplaced
    if unplaced:
        return f"no room for {counted(len(unplaced), 'publisher')}: {some(unplaced)}"
    return "met" if found.met else "missed"
