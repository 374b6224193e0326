"""`srtm topic register`, `publishers`, `add` and `remove`: who sends to a topic."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from distributor.api_fields import PublisherAsked
from distributor.cli.topic_file import read_topic_files, upload
from distributor.remote import Remote, print_json, remote_options
from srtm.text.errors import one_line
from srtm.text.terminal import Column, Table, show
from srtm.text.words import counted, number, rate

_LONG = 20_000
"""publishers, of which registering takes so long that a bar shows how far it is"""


@click.command()
@click.argument("file", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@remote_options
def register(file: tuple[Path, ...], remote: Remote, as_json: bool) -> None:
    """Register topics and their publishers with the Load Distributor.

    \b
    FILE is TOML, of one topic:
      name = "sensors"
      rate = 11000                   # messages/s over all brokers
      burst = 50                     # messages
      slo = "0.99@1ms"               # and, if wanted, mode, max-wait, batch, fair, lease-grace
      keys = ["room-1", "room-2"]    # optional: the only correlation keys
      publishers = "publishers.csv"  # beside FILE

    \b
    or of many, each a table of these keys behind a line
      [[topic]]

    Publishers are CSV with the header id,key,rate, or JSON lines (.jsonl) of {"id", "key", "rate"}.
    Publishers with the same key send together; an empty key means none; rates are messages/s. All
    files are checked before anything is sent, and up to 1,000 topics with 20,000 publishers are
    registered in one transaction. Registering again changes what differs; publishers that are not
    in the files stay.
    """
    topics = read_topic_files(file)
    whole = sum(len(each.publishers) for each in topics)
    with click.progressbar(
        length=whole,
        label="registers publishers",
        file=sys.stderr,
        hidden=whole < _LONG or not sys.stderr.isatty(),
    ) as bar:
        upload(remote, topics, bar.update)
    if as_json:
        done = [
            {"topic": each.contract.topic, "registered": len(each.publishers)} for each in topics
        ]
        print_json(done[0] if len(done) == 1 else {"topics": done})
        return
    if len(topics) > 1:
        line = f"{counted(len(topics), 'topic')} with {counted(whole, 'publisher')} registered"
        click.echo(f"{line}; srtm topic list shows which are placed on no broker yet")
        return
    name, everybody = topics[0].contract.topic, topics[0].publishers
    offered = rate(sum(each.rate for each in everybody))
    line = f"topic {name}: {counted(whole, 'publisher')} with {offered} registered"
    if remote.call("GET", "topics", name)["epoch"] is None:
        line += f"; placed on no broker yet: srtm placement apply {name}"
    click.echo(line)


_SHARE_SECONDS = 3.0
"""Gateways report once a second, and sooner while shares change."""
_POLL_SECONDS = 0.1


@click.command()
@click.argument("name")
@click.option("--broker", help="Only publishers of this broker; '-' for publishers without one.")
@remote_options
def publishers(name: str, broker: str | None, remote: Remote, as_json: bool) -> None:
    """List the publishers of topic NAME with their keys, rates and brokers."""
    found = [
        each
        for each in every_publisher(remote, name)
        if broker is None or (each["broker"] or "-") == broker
    ]
    if as_json:
        print_json({"topic": name, "publishers": found})
        return
    if not found:
        click.echo(f"topic {name} has no such publisher")
        return
    table = Table(
        Column("publisher", text=True),
        Column("key", 1, text=True),
        Column("messages/s"),
        Column("broker", text=True),
        Column("address", 2, text=True),
    )
    for each in found:
        table.add(
            each["id"],
            each["key"] or "-",
            number(each["rate"]),
            each["broker"] or "-",
            each["tcp_address"] or "-",
        )
    show(table)


@click.command()
@click.argument("name")
@click.argument("publisher")
@click.option("--rate", required=True, type=float, help="Messages/s that it sends.")
@click.option("--key", help="Correlation key: publishers with the same key send together.")
@remote_options
def add(
    name: str, publisher: str, rate: float, key: str | None, remote: Remote, as_json: bool
) -> None:
    """Register PUBLISHER of topic NAME, or change its rate and key.

    If the topic is placed, the publisher gets a broker at once where there is room; no other
    publisher moves.
    """
    values = {"id": publisher, "rate": rate, "key": key}
    try:
        asked = PublisherAsked.model_validate(values)
    except ValidationError as error:
        raise one_line(error, f"publisher {publisher}") from None
    body = {"publishers": [asked.model_dump()]}
    remote.call("POST", "topics", name, "publishers", body=body)
    place = _place(remote, name, publisher)
    if as_json:
        print_json(place)
    else:
        click.echo(f"publisher {publisher} of topic {name}: {_told(place, name)}")


@click.command()
@click.argument("name")
@click.argument("publisher")
@remote_options
def remove(name: str, publisher: str, remote: Remote, as_json: bool) -> None:
    """Forget PUBLISHER of topic NAME. A running srtm.client Publisher that gives its rate registers
    itself again."""
    remote.call("DELETE", "topics", name, "publishers", publisher)
    if as_json:
        print_json({"topic": name, "publisher": publisher, "removed": True})
    else:
        click.echo(f"publisher {publisher} of topic {name} is forgotten")


def every_publisher(remote: Remote, name: str) -> Iterator[dict[str, Any]]:
    """All publishers in order of their ids, a page after the other. Raises as `Remote.call`
    does."""
    after: str | None = ""
    while after is not None:
        answer = remote.call("GET", "topics", name, "publishers", query={"after": after})
        yield from answer["publishers"]
        after = answer["next"]


def _place(remote: Remote, name: str, publisher: str) -> dict[str, Any]:
    """Where it connects. In a placed topic that is known once its broker holds its share."""
    is_placed = remote.call("GET", "topics", name)["epoch"] is not None
    deadline = time.monotonic() + (_SHARE_SECONDS if is_placed else 0.0)
    while True:
        place: dict[str, Any] = remote.call("GET", "topics", name, "publishers", publisher)
        if place["broker"] or time.monotonic() >= deadline:
            return place
        time.sleep(_POLL_SECONDS)


def _told(place: dict[str, Any], topic: str) -> str:
    where = f"on broker {place['broker']}"
    if not place["broker"]:
        where = f"no broker yet; srtm placement plan {topic} --keep says why"
    return f"{rate(place['rate'])}, {where}"
