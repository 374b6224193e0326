"""`srtm correlate propose`: groups of a result to the distributor, with their evidence."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from distributor.cli.groups import taken_line
from distributor.grouping.proposals import MAX_GROUPS, MAX_MEMBERS, Group, Member, Proposal
from distributor.remote import Remote, print_json, remote_options
from srtm.correlation.result import GroupedTopic, Result, read_result
from srtm.host.files import MOST_ROWS_BYTES, read_file
from srtm.text.errors import UsageError, one_line
from srtm.text.words import counted


@click.command("propose")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--topic", help="Only this topic.")
@remote_options
def propose(folder: Path, topic: str | None, remote: Remote, as_json: bool) -> None:
    """Propose the groups that srtm correlate run or stream left in DIR to the Load Distributor.

    No publisher moves by this: srtm placement groups TOPIC shows and accepts the groups, and srtm
    placement apply TOPIC places by them. Topics that the distributor does not know are left out.
    Sending the same groups again makes no new proposal.
    """
    answers, lines = [], []
    for each in sent(remote, folder, topic):
        lines += [f"topic {each.topic}: {why}" for why in each.left_out]
        if each.answer is None:
            continue
        answers.append({**each.answer, "left_out": each.left_out})
        if not as_json:
            click.echo(taken_line(each.answer))
    for line in lines:
        click.echo(line, err=True)
    if as_json:
        print_json({"topics": answers})
    elif not answers:
        click.echo("nothing to propose: no topic of the result is registered")


@dataclass(frozen=True)
class Sent:
    """answer: the distributor's (GroupsTaken); None: it does not know the topic; left_out: in
    sentences"""

    topic: str
    answer: dict[str, Any] | None
    left_out: list[str]


def sent(remote: Remote, folder: Path, topic: str | None = None) -> Iterator[Sent]:
    """Propose each topic of the result in `folder`, or that one alone. Raises SrtmError."""
    span, found, shares = _read(folder)
    found = found.only(topic)
    known = {each["topic"] for each in remote.call("GET", "topics")["topics"]}
    if topic is not None and topic not in known:
        raise UsageError(f"topic {topic} is not registered; srtm topic register FILE does it")
    for each in found.topics:
        if each.topic not in known:
            yield Sent(each.topic, None, ["left out, the distributor does not know it"])
            continue
        proposal, left_out = proposal_of(each, shares.get(each.topic, {}), span)
        body = proposal.model_dump()
        yield Sent(
            each.topic, remote.call("PUT", "topics", each.topic, "groups", body=body), left_out
        )


def proposal_of(
    topic: GroupedTopic, shares: dict[str, float], span: tuple[int, int]
) -> tuple[Proposal, list[str]]:
    """A proposal with as many of the topic's groups as the distributor takes, the surest ones taken
    first; and what is left out, in sentences.

    shares: by group; span: first and last arrival, ns since 1970
    """
    said, taken, members, strange = list[str](), list[Group](), 0, 0
    for each in sorted(topic.groups, key=lambda group: (group.q, -group.lift)):
        good = [publisher for publisher in each.publishers if _is_id(publisher)]
        strange += len(each.publishers) - len(good)
        if len(good) < 2:
            continue
        if len(taken) == MAX_GROUPS or members + len(good) > MAX_MEMBERS:
            continue
        members += len(good)
        taken.append(
            Group(
                name=each.name,
                publishers=good,
                lift=each.lift,
                q=each.q,
                coincidences=each.coincidences,
                share=min(1.0, max(0.0, shares.get(each.name, 0.0))),
            )
        )
    if strange:
        said.append(f"{counted(strange, 'publisher')} left out, whose ids nobody can register")
    if len(taken) < len(topic.groups):
        left = len(topic.groups) - len(taken)
        said.append(
            f"{counted(left, 'group')} left out: the distributor takes {MAX_GROUPS:,} groups of "
            f"{MAX_MEMBERS:,} publishers"
        )
    order = {each.name: at for at, each in enumerate(topic.groups)}
    taken.sort(key=lambda group: order[group.name])
    first, last = span
    proposal = Proposal(first=first, last=last, publishers=topic.publishers, groups=taken)
    return proposal, said


def _read(folder: Path) -> tuple[tuple[int, int], Result, dict[str, dict[str, float]]]:
    """Span, result and shares of one run, though a stream may replace it meanwhile. Raises
    UsageError."""
    while True:
        before = _span(folder)
        found = before, read_result(folder), _shares(folder)
        if _span(folder) == before:
            return found


_MEMBER: TypeAdapter[str] = TypeAdapter(Member)


def _is_id(publisher: str) -> bool:
    try:
        _MEMBER.validate_python(publisher)
    except ValidationError:
        return False
    return True


class _Run(BaseModel):
    """What is needed of run.json."""

    model_config = ConfigDict(extra="ignore")

    first: int | None
    last: int | None


def _span(folder: Path) -> tuple[int, int]:
    """First and last arrival of the trace. Raises UsageError."""
    path = folder / "run.json"
    try:
        found = _Run.model_validate_json(read_file(path, MOST_ROWS_BYTES))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise one_line(error, str(path)) from None
    if found.first is None or found.last is None:
        raise UsageError(f"{folder}: the trace was empty; there is nothing to propose")
    return found.first, found.last


def _shares(folder: Path) -> dict[str, dict[str, float]]:
    """Topic -> group -> share. Raises UsageError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "groups.parquet"
    try:
        table = pq.read_table(path, columns=["topic", "name", "share"])
    except (OSError, pa.ArrowException) as error:
        said = str(error).splitlines()[0][:200]
        raise UsageError(f"{path}: cannot be read: {said}") from None
    found: dict[str, dict[str, float]] = {}
    for row in table.to_pylist():
        found.setdefault(row["topic"], {})[row["name"]] = row["share"]
    return found
