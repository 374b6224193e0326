"""`srtm audit`."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from srtm.audit.contracts import Source
from srtm.audit.folder import read_sessions
from srtm.audit.judge import Audit, Gap, Share, judge
from srtm.limits.contract import Batches
from srtm.options.model import parsed
from srtm.text.duration import format_duration, parse_duration
from srtm.text.errors import Exit, UsageError

_MOST_SHOWN = 20
"""gaps and contracts on the terminal; --json has all"""
_SAID_BY = {
    Source.DISTRIBUTOR: "told by the Load Distributor",
    Source.GATEWAYS: "the sum of the gateways' own limits",
    Source.GIVEN: "given",
    Source.NOBODY: "",
}


@click.command("audit")
@click.argument("topic")
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=Path)
@click.option("--rate", type=float, metavar="R", help="messages/s to judge by, with --burst")
@click.option("--burst", type=float, metavar="B", help="messages to judge by, with --rate")
@click.option(
    "--clock-error",
    metavar="DURATION",
    callback=parsed(parse_duration),
    help="error of each host's wall clock, in place of the error that its kernel reported",
)
@click.option(
    "--batches",
    type=click.Choice([each.value for each in Batches]),
    default=Batches.WHOLE.value,
    show_default=True,
    help="how the contract limits batches bigger than a broker's share of b",
)
@click.option("--json", "as_json", is_flag=True, help="one JSON object")
def audit(
    topic: str,
    folders: tuple[Path, ...],
    rate: float | None,
    burst: float | None,
    clock_error: float | None,
    batches: str,
    as_json: bool,
) -> None:
    """Check whether all brokers of TOPIC together kept its contract.

    Each DIR is a folder of `srtm gateway --admission-log`, of one broker or of several. In every
    interval of t seconds of bucket time the messages must not exceed max(b, largest batch) + r*t;
    the worst interval is shown. The contract is the one recorded in the logs, with its changes, or
    that of --rate and --burst. With --batches each the bound is the sum of max(b_l, largest batch)
    over the brokers, + r*t.

    Exit code 1: the contract was exceeded, even allowing for the error of the clocks.
    """
    given = _given(rate, burst)
    stated = None if clock_error is None else int(clock_error * 1e9)
    each = batches == Batches.EACH
    found = judge(topic, read_sessions(folders, topic), given, stated, each)
    if as_json:
        click.echo(json.dumps(document(found)))
    else:
        for line in lines(found):
            click.echo(line)
    if found.is_exceeded:
        raise click.exceptions.Exit(Exit.FAILED)


def _given(rate: float | None, burst: float | None) -> tuple[float, float] | None:
    if rate is None and burst is None:
        return None
    if rate is None or burst is None:
        raise UsageError("--rate and --burst go together: give both, or none")
    if not 0 < rate < float("inf"):
        raise UsageError(f"--rate {rate:g}: messages/s, above 0")
    if not 1 <= burst < float("inf"):
        raise UsageError(f"--burst {burst:g}: messages, at least 1")
    return rate, burst


def document(found: Audit) -> dict[str, Any]:
    """Times are seconds since 1970, lengths seconds, amounts messages."""
    worst = found.worst
    return {
        "topic": found.topic,
        "since": _seconds(found.since),
        "until": _seconds(found.until),
        "messages": found.messages,
        "excess": found.excess,
        "exceeded": found.is_exceeded,
        "interval": worst
        and {
            "since": _seconds(worst.begins),
            "seconds": (worst.ends - worst.begins) / 1e9,
            "messages": worst.messages,
            "allowed": worst.allowed,
        },
        "largest_batch_over_share": found.batch,
        "batches": "each" if found.each else "whole",
        "clock_error_seconds": found.clock_error_ns / 1e9,
        "clock_error_messages": found.clock_messages,
        "clock_stepped_seconds": found.clock_stepped_ns / 1e9,
        "contract": [
            {
                "since": _seconds(span.since),
                "source": span.source,
                "rate": span.rate or None,
                "burst": span.burst or None,
            }
            for span in found.spans
        ],
        "unjudged": found.unjudged,
        "brokers": {share.broker: _share(share) for share in found.shares},
        "complete": found.is_complete,
        "gaps": [
            asdict(gap) | {"since": _seconds(gap.since), "until": _seconds(gap.until)}
            for gap in found.gaps
        ],
    }


def lines(found: Audit) -> list[str]:
    """The audit in lines for a person."""
    said = [
        f"topic {found.topic}: {found.messages:,} messages, {_when(found.since)} to "
        f"{_when(found.until)}"
    ]
    said += [
        f"  {share.broker}: {share.messages:,} messages, {share.processes} "
        f"process{'es' if share.processes > 1 else ''}"
        + (f", {share.excess:.6g} over its own share" if share.excess > found.rounding else "")
        for share in found.shares
    ]
    for span in found.spans[:_MOST_SHOWN]:
        if span.source is Source.NOBODY:
            said.append(f"contract: unknown from {_when(span.since)}")
        else:
            said.append(
                f"contract: {span.rate:,g}/s, burst {span.burst:,g} from {_when(span.since)}, "
                f"{_SAID_BY[span.source]}"
            )
    if len(found.spans) > _MOST_SHOWN:
        said.append(f"contract: {len(found.spans) - _MOST_SHOWN} more changes (--json)")
    if found.unjudged:
        said.append(f"not judged: {found.unjudged:,} messages while nobody said a contract")
    said += _verdict(found)
    said += [_gap(gap) for gap in found.gaps[:_MOST_SHOWN]]
    if len(found.gaps) > _MOST_SHOWN:
        said.append(f"gaps: {len(found.gaps) - _MOST_SHOWN} more (--json)")
    return said


def _verdict(found: Audit) -> list[str]:
    worst = found.worst
    if worst is None:
        return ["excess: nothing to judge"]
    verdict = "the contract was EXCEEDED" if found.is_exceeded else "the contract was kept"
    said = [
        f"excess: {found.excess:.6g} messages; {verdict}",
        f"  fullest interval: {worst.messages:,} messages in "
        f"{(worst.ends - worst.begins) / 1e9:.6g} s from {_when(worst.begins)}; "
        f"{_bound(found)} is {worst.allowed:,.6g}",
    ]
    if found.batch:
        said.append(f"  the largest batch that was bigger than its broker's b had {found.batch:,}")
    if found.clock_error_ns:
        said.append(
            f"  clocks of the hosts may differ by {format_duration(found.clock_error_ns / 1e9)}: "
            f"{found.clock_messages:,.6g} messages more or less (--clock-error)"
        )
    if found.clock_stepped_ns:
        stepped = format_duration(found.clock_stepped_ns / 1e9)
        said.append(f"  a wall clock was stepped by {stepped} meanwhile")
    return said


def _bound(found: Audit) -> str:
    if not found.batch:
        return "b + r t"
    return "sum of max(b_l, batch) + r t" if found.each else "max(b, batch) + r t"


def _gap(gap: Gap) -> str:
    since = "the beginning" if gap.since is None else _when(gap.since)
    until = "?" if gap.until is None else _when(gap.until)
    span = f"{since} to {until}"
    what = {
        "dropped": f"{gap.messages or 0:,} messages of all topics were dropped, {span}",
        "cut": f"killed: what it admitted after {since} is missing, "
        + (
            "nobody knows how much"
            if gap.at_most is None
            else f"at most {gap.at_most:,.6g} messages until {until}"
        ),
        "open": f"no end: it runs, or was killed; whole until {since}",
        "damaged": f"a damaged file: it cannot be read on from {since}",
        "rotated": f"files older than {until} have made room",
        "missing": "a file is missing in the row",
    }
    return f"gap of {gap.broker}: {what[gap.kind]}"


def _share(share: Share) -> dict[str, Any]:
    return {
        "messages": share.messages,
        "processes": share.processes,
        "excess_over_share": share.excess,
        "largest_batch_over_share": share.batch,
    }


def _seconds(wall_ns: int | None) -> float | None:
    return None if wall_ns is None else wall_ns / 1e9


def _when(wall_ns: int) -> str:
    """UTC, to the microsecond."""
    seconds, rest = divmod(wall_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"
