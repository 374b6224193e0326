"""The demo's load without keys: traced, grouped by Spark, placed by what was found."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distributor.cli.groups import taken_line
from distributor.grouping.keys import Use
from distributor.remote import Remote
from srtm.correlation.propose import sent
from srtm.correlation.result import Result
from srtm.correlation.session import spark_session
from srtm.demo.load import PUBLISHERS, publishers
from srtm.demo.measure import Outcome, measure, register
from srtm.deployment.document import Deployment
from srtm.host.clock import NS, monotonic_ns
from srtm.limits.contract import Contract
from srtm.text.errors import UnavailableError

NO_GROUPS, INFERRED, GIVEN = "no-groups", "inferred", "given"
PERCENTILE = 0.99

_TRACED_SECONDS = 90.0
"""a gateway's file appears once its oldest row is 60 s old"""
_POLL_SECONDS = 0.5

Say = Callable[[str], None]


def three_ways(
    deployment: Deployment,
    remote: Remote,
    contract: Contract,
    seconds: float,
    trace: Path,
    say: Say,
    seed: int = 1,
) -> list[Outcome]:
    """Measure the load three ways: without groups, with the groups that were found in the trace of
    that load, proposed and accepted, and with the rooms as users name them. All three take equally
    few brokers and the same send times. Raises SrtmError."""
    assert contract.slo is not None
    topic, slo = contract.topic, contract.slo

    def measured(policy: str, groups: Use, name: str) -> Outcome:
        say(f"{name}: {PUBLISHERS} publishers, {seconds:g} s of load")
        return measure(deployment, remote, policy, seconds, slo, topic, name, seed, groups)

    register(remote, contract, [each.model_copy(update={"key": None}) for each in publishers()])
    # As srtm, only that a placement by `conc` knows no groups.
    blind = measured("conc", "user", NO_GROUPS)
    say("waiting for the gateways' trace, then Spark looks for groups")
    _await_trace(trace, topic, len(blind.measured))
    folder = trace.parent / "groups"
    groups = find(trace, folder, topic).topics[0].groups
    say(f"found {len(groups)} groups of {sum(len(each.publishers) for each in groups)} publishers")
    say(taken_line(accept(remote, folder, topic)))
    inferred = measured("srtm", "inferred", INFERRED)
    register(remote, contract, publishers())
    return [blind, inferred, measured("srtm", "user", GIVEN)]


def find(trace: Path, folder: Path, topic: str) -> Result:
    """Find groups, as `srtm correlate run --trace TRACE --out FOLDER --topic TOPIC` does. Raises
    UnavailableError without Spark or Java."""
    with spark_session() as spark:
        from srtm.correlation.run import Request, run

        result, _ = run(spark, Request(trace, folder, topic))
    return result


def accept(remote: Remote, folder: Path, topic: str) -> dict[str, Any]:
    """Propose groups and accept them, as `srtm correlate propose FOLDER --topic TOPIC` and `srtm
    placement groups TOPIC accept` do. Raises SrtmError."""
    (proposed,) = sent(remote, folder, topic)
    assert proposed.answer is not None  # of a topic that is named
    body = {"decision": "accept", "number": proposed.answer["number"]}
    taken: dict[str, Any] = remote.call("POST", "topics", topic, "groups", body=body)
    return taken


def gain_kept(blind: Outcome, inferred: Outcome, given: Outcome) -> str:
    """What this run showed, also where it is not what we would like."""
    waits = [p99_wait(each) * 1e3 for each in (blind, inferred, given)]
    said = (
        f"token wait at p99: {waits[0]:.3g} ms without groups, {waits[1]:.3g} ms with those that "
        f"Spark found, {waits[2]:.3g} ms with those that users named"
    )
    kept = kept_share(*waits)
    if kept is None:
        return f"{said}: named groups gain nothing in this run."
    if kept >= 1:
        return f"{said}: found groups gain no less than named ones."
    return f"{said}: found groups keep {kept:.0%} of the gain."


def p99_wait(outcome: Outcome, on_paper: bool = False) -> float:
    """The p99 of the token waits that the gateways measured, seconds; on_paper: of those that the
    same send times have in exact buckets, whatever else the machine did."""
    return float(np.quantile(outcome.predicted if on_paper else outcome.measured, PERCENTILE))


def kept_share(blind: float, inferred: float, given: float) -> float | None:
    """The share of the gain of given groups that inferred groups keep; None: given groups gain
    nothing."""
    return (blind - inferred) / (blind - given) if given < blind else None


def _await_trace(folder: Path, topic: str, messages: int) -> None:
    """Wait until the trace's files hold `messages` messages of the topic."""
    deadline_ns = monotonic_ns() + int(_TRACED_SECONDS * NS)
    while (there := _traced(folder, topic)) < messages:
        if monotonic_ns() > deadline_ns:
            raise UnavailableError(
                f"topic {topic}: {there:,} of {messages:,} messages are in the gateways' trace "
                f"after {_TRACED_SECONDS:g} s"
            )
        time.sleep(_POLL_SECONDS)


def _traced(folder: Path, topic: str) -> int:
    total = 0
    for path in folder.glob("*.parquet"):
        try:
            table = pq.read_table(path, columns=["topic", "messages"])
        except FileNotFoundError:  # compacted just now
            continue
        mine = table.filter(pc.equal(table.column("topic"), topic))
        total += pc.sum(mine.column("messages")).as_py() or 0
    return total
