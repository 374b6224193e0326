"""`srtm adaptor`."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from distributor.cli.adaptation import settings_line, when
from distributor.remote import Remote, print_json, remote_options
from srtm.cli.group import LazyGroup
from srtm.cli.policies import list_policies
from srtm.limits.contract import MIN_RATE
from srtm.options.model import duration_option
from srtm.text.duration import parse_duration
from srtm.text.errors import UsageError
from srtm.text.terminal import Column, Table, show
from tb_adaptor.policies import POLICIES
from tb_adaptor.share import Part
from tb_adaptor.simulator.bound import least_ms
from tb_adaptor.simulator.files import read_arrivals, read_shares
from tb_adaptor.simulator.hindsight import hindsight
from tb_adaptor.simulator.judge import excess, in_ms, unsplit
from tb_adaptor.simulator.run import Outcome, Settings, simulate

_PERCENTILES = ("mean", "p50", "p99", "max")
_YARDSTICKS = {
    "hindsight": "a good constant split between two --shift, by search with all arrivals known; "
    "no bound, as a policy may move shares in between",
    "unsplit": "one bucket for all brokers: what a split costs is measured against it",
}


@click.group(cls=LazyGroup)
def adaptor() -> None:
    """Explain and simulate how the TB Adaptor moves r and b of a topic between brokers as its
    traffic moves."""


@adaptor.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list.")
def policies(as_json: bool) -> None:
    """List the policies of `srtm adaptor simulate --policy`, and the references beside them."""
    known = {name: each.shows for name, each in POLICIES.items()}
    list_policies(known | _YARDSTICKS, as_json)


@adaptor.command("simulate")
@click.argument("arrivals", type=click.Path(path_type=Path), metavar="ARRIVALS.csv")
@click.option("--rate", type=float, required=True, help="r of the contract, messages/s.")
@click.option("--burst", type=float, required=True, help="b of the contract, messages.")
@click.option(
    "--policy",
    "names",
    multiple=True,
    type=click.Choice([*POLICIES, *_YARDSTICKS]),
    help="Policy to run; may be given more than once.  [default: all but hindsight and unsplit]",
)
@click.option(
    "--shift",
    "shifts",
    multiple=True,
    metavar="DURATION",
    help="Time at which hindsight changes its split; may be given more than once.",
)
@duration_option("--window", "10s", "How far back a policy looks at the traffic.")
@duration_option("--every", "10s", "How often a policy is asked.")
@duration_option("--report", "1s", "How often a broker reports and is told its share.")
@click.option(
    "--initial",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help='Shares at 0 s, {"b1": [r_l, b_l], ...}.  [default: even shares]',
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list.")
def simulate_command(
    arrivals: Path,
    rate: float,
    burst: float,
    names: tuple[str, ...],
    shifts: tuple[str, ...],
    window: float,
    every: float,
    report: float,
    initial: Path | None,
    as_json: bool,
) -> None:
    """Show the token waits that each policy would give recorded arrivals.

    ARRIVALS.csv has the columns seconds,broker,messages, sorted by time. A row is one batch, which
    waits for as many tokens as it has messages; one bigger than b_l goes when its bucket is full.
    """
    contract = _contract(rate, burst)
    for flag, seconds in (("--window", window), ("--every", every), ("--report", report)):
        if seconds < _SHORTEST_SECONDS:
            raise UsageError(f"{flag}: at least {_SHORTEST_SECONDS * 1e3:g} ms")
    came = read_arrivals(arrivals)
    if burst < len(came):
        raise UsageError(
            f"--burst {burst:g}: each of {len(came)} brokers has one message of b at least"
        )
    split = read_shares(initial, contract, list(came)) if initial else None
    one, least = unsplit(contract, came), least_ms(contract, came)
    at = _seconds(shifts)

    def outcome(name: str) -> Outcome:
        if name == "unsplit":
            return one
        if name == "hindsight":
            return hindsight(contract, came, at)
        return simulate(name, contract, came, split, Settings(window, every, report))

    outcomes = {name: outcome(name) for name in dict.fromkeys(names or POLICIES)}
    same = {"unsplit_ms": in_ms(one.waits), "least_ms": least}
    rows = [_row(name, each, contract, same) for name, each in outcomes.items()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        show(_table(rows, in_ms(one.waits), least))


def _row(
    name: str, outcome: Outcome, contract: Part, same: Mapping[str, dict[str, float]]
) -> dict[str, Any]:
    """same: figures that all rows have"""
    return {
        "policy": name,
        "token_wait_ms": in_ms(outcome.waits),
        **same,
        "excess": excess(outcome, contract),
        "shares": [
            [at, {broker: list(part) for broker, part in shares.items()}]
            for at, shares in outcome.shares
        ],
    }


def _contract(rate: float, burst: float) -> Part:
    """Raises UsageError."""
    if not (MIN_RATE <= rate < math.inf):
        raise UsageError(f"--rate {rate:g}: r is above 0, in messages/s")
    if not (1 <= burst < math.inf):
        raise UsageError(f"--burst {burst:g}: b is at least 1 message")
    return Part(rate, burst)


@adaptor.command()
@click.argument("topic")
@remote_options
def explain(topic: str, remote: Remote, as_json: bool) -> None:
    """Show how the shares of TOPIC follow its traffic: the shares, since when they are in force,
    and each rescale since the distributor became leader, with its reasons, newest first."""
    found = remote.look("topics", topic, "adaptation")
    if as_json:
        print_json(found)
        return
    click.echo(settings_line(found))
    since = "" if found["since"] is None else f" since {when(found['since'])}"
    click.echo(f"shares{since}: {_shares(found['shares'])}")
    for each in found["rescales"]:
        click.echo(f"{when(each['at'])}: {_shares(each['before'])}")
        click.echo(f"  to {_shares(each['after'])}")
        for reason in each["reasons"]:
            click.echo(f"  - {reason}")


def _shares(shares: dict[str, list[float]]) -> str:
    each = (f"{name} {r:.4g}/s and {b:.4g}" for name, (r, b) in sorted(shares.items()))
    return "; ".join(each) or "none"


_SHORTEST_SECONDS = 0.01


def _seconds(shifts: tuple[str, ...]) -> list[float]:
    """Raises UsageError."""
    try:
        return sorted(map(parse_duration, shifts))
    except ValueError as error:
        raise UsageError(f"--shift: {error}") from None


def _table(rows: list[dict[str, Any]], unsplit: dict[str, float], least: dict[str, float]) -> Table:
    table = Table(
        Column("policy", text=True),
        *(Column(f"{each} ms") for each in _PERCENTILES),
        Column("excess"),
        Column("rescales"),
        title="token wait",
    )
    for row in rows:
        if row["policy"] != "unsplit":
            rescales = str(len(row["shares"]) - 1)
            table.add(row["policy"], *_cells(row["token_wait_ms"]), f"{row['excess']:g}", rescales)
    table.add("one bucket", *_cells(unsplit), "0", "-")
    table.add("none is below", *_cells(least), "-", "-")
    return table


def _cells(waits: dict[str, float]) -> list[str]:
    return [
        f"{waits[each]:,.3g}" if waits[each] < 100 else f"{waits[each]:,.0f}"
        for each in _PERCENTILES
    ]
