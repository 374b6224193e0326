"""`srtm topic`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import click

from distributor.api_fields import MigrationMode
from distributor.cli.adaptation import (
    ADAPTATION_KEYS,
    adaptation_options,
    settings_line,
    since_line,
)
from distributor.cli.topics import (
    batch_lines,
    delete_topic,
    describe_topic,
    list_topics,
    warn_of_rates,
)
from distributor.remote import Remote, print_json, remote_or_none
from srtm.cli.group import LazyGroup
from srtm.deploy.kept_topics import describe as describe_limit
from srtm.deploy.placed_topics import PlacedTopics
from srtm.deploy.shown import broker_table, topics_table
from srtm.deploy.topics import Topics
from srtm.deployment.document import find
from srtm.deployment.layout import DATA_PATH
from srtm.limits.contract import Mode
from srtm.text.errors import UnavailableError, UsageError
from srtm.text.terminal import show


@click.group(
    cls=LazyGroup,
    imported={
        "register": "distributor.cli.publishers:register",
        "publishers": "distributor.cli.publishers:publishers",
        "add": "distributor.cli.publishers:add",
        "remove": "distributor.cli.publishers:remove",
    },
)
def topic() -> None:
    """Set, delete and show the limits of topics, in a running deployment or at a Load Distributor
    (--distributor-address); register topics whose publishers are to be placed."""


def _options(function: Callable[..., None]) -> Callable[..., None]:
    """--deployment, --distributor-address and --json, which each command takes."""
    where = click.option(
        "--deployment",
        "deployment",
        type=click.Path(path_type=Path),
        envvar="SRTM_DEPLOYMENT",
        default=DATA_PATH,
        show_default=True,
        show_envvar=True,
        help="Data path of the deployment, or its TOML file.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    return where(remote_or_none(as_json(function)))


@topic.command("set")
@click.argument("name")
@click.option("--rate", help="Messages per second, over all brokers.")
@click.option("--burst", help="Messages at once, over all brokers.")
@click.option(
    "--mode",
    help=f"What happens to a message over the limit: {', '.join(Mode)} (default: {Mode.DELAY}).",
)
@click.option("--max-wait", help="How long a message may be delayed, such as 2s; or the word none.")
@click.option("--slo", help="PERCENTILE@DURATION, such as 0.99@5ms; or the word none.")
@click.option("--batch", help="Messages in the largest batch: no broker's share of b is smaller.")
@click.option(
    "--batches",
    help="How a batch bigger than its broker's share of b is limited: whole (the default: it waits "
    "until its broker has all of b) or each (it goes at once; brokers together may exceed b).",
)
@click.option(
    "--fair",
    help="Who gets equal parts of the tokens while messages wait: each publisher, each correlation "
    "key (key); or the word none, for order of arrival.",
)
@click.option(
    "--lease-grace",
    help="How long brokers keep their shares after the lease, while no distributor answers, such "
    "as 5m; or the word none, for not at all.",
)
@adaptation_options
@click.option(
    "--migrate",
    type=click.Choice(get_args(MigrationMode)),
    help="What the distributor does if a broker is late or gets more than it holds, and no "
    "rescale helps: off: nothing; propose (the default): propose moves; auto: make them.",
)
@_options
def set_(
    name: str, deployment: Path, remote: Remote | None, as_json: bool, **given: str | None
) -> None:
    """Give topic NAME a limit, or change only the given parts of its limit.

    The limit survives a restart and is split evenly over the brokers. If the distributor holds the
    topic, its contract is changed there and split as the topic is placed.
    """
    asked = _asked(given)
    owner = PlacedTopics(remote) if remote is not None else Topics(find(deployment))
    document: dict[str, Any] = {"topic": name}
    lines = []
    if asked.contract:
        changed = owner.change(name, asked.contract)
        contract = changed.contract
        warn_of_rates(name, contract.rate, changed.offered)
        document |= contract.document()
        lines.append(f"topic {name}: {describe_limit(contract)}, {changed.split}")
    if asked.adaptation:
        document["adaptation"] = owner.adapt(name, asked.adaptation)
        lines.append(settings_line(document["adaptation"]))
    if asked.migrate is not None:
        document["migration"] = owner.migrate(name, asked.migrate)
        lines.append(f"topic {name}: migrate {asked.migrate}")
    if as_json:
        print_json(document)
    else:
        click.echo("\n".join(lines))


_MAY_BE_NONE = ("max-wait", "slo", "fair", "lease-grace")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What `srtm topic set` is to change. contract: keys as files name them; None takes one
    away."""

    contract: dict[str, str | None]
    adaptation: dict[str, str]
    migrate: str | None


def _asked(given: Mapping[str, str | None]) -> _Asked:
    """Raises UsageError where nothing is given."""
    values = {name.replace("_", "-"): value for name, value in given.items() if value is not None}
    migrate = values.pop("migrate", None)
    adaptation = {key: values.pop(key) for key in ADAPTATION_KEYS if key in values}
    if not values and not adaptation and migrate is None:
        raise UsageError(
            "srtm topic set: give --rate, --burst, --mode, --max-wait, --slo, --batch, --batches, "
            "--fair, --lease-grace, --adapt or --migrate"
        )
    contract = {
        key: None if value == "none" and key in _MAY_BE_NONE else value
        for key, value in values.items()
    }
    return _Asked(contract, adaptation, migrate)


@topic.command()
@click.argument("name")
@_options
def delete(name: str, deployment: Path, remote: Remote | None, as_json: bool) -> None:
    """Take the limit of topic NAME away; its messages stay."""
    if remote is not None:
        delete_topic(remote, name, as_json)
        return
    Topics(find(deployment)).delete(name)
    if as_json:
        print_json({"topic": name, "deleted": True})
    else:
        click.echo(f"topic {name} has no limit any more")


@topic.command("list")
@_options
def list_(deployment: Path, remote: Remote | None, as_json: bool) -> None:
    """List every topic, summed over the brokers, and its owner: the distributor, or the deployment,
    which splits it evenly."""
    if remote is not None:
        list_topics(remote, as_json)
        return
    report = Topics(find(deployment)).report()
    if as_json:
        print_json(report.document())
    else:
        show(topics_table(report))
    _complain(report.silent)


@topic.command()
@click.argument("name")
@_options
def describe(name: str, deployment: Path, remote: Remote | None, as_json: bool) -> None:
    """Show topic NAME on each broker, with its contract in the last row. If the distributor holds
    the topic, also show since when its shares are in force."""
    if remote is not None:
        describe_topic(remote, name, as_json)
        return
    topics = Topics(find(deployment))
    report = topics.report()
    status = next((each for each in report.topics if each.topic == name), None)
    if status is None:
        _complain(report.silent)
        raise UsageError(f"there is no topic {name}; srtm topic list shows the known topics")
    adaptation = topics.adaptation(status)
    if as_json:
        document = {**status.document(), "silent": report.silent}
        print_json(document | ({"adaptation": adaptation} if adaptation else {}))
    else:
        show(broker_table(status))
        largest = status.placed.largest_batch if status.placed else 1
        for line in batch_lines({"topic": name, **status.contract}, largest, len(status.brokers)):
            click.echo(line)
        if adaptation:
            click.echo(since_line(adaptation))
    _complain(report.silent)


def _complain(silent: dict[str, str]) -> None:
    if silent:
        why = "; ".join(f"{broker} does not answer: {error}" for broker, error in silent.items())
        raise UnavailableError(f"the answer is incomplete: {why}")
