"""`srtm journey`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from srtm.cli.group import LazyGroup
from srtm.cli.looks import Looks, looks_options
from srtm.http.client import Endpoint, get_json
from srtm.http.service import ClientFiles, service_at
from srtm.options.client_files import client_files
from srtm.options.logs import log_level_option, log_to_stderr
from srtm.text.duration import parse_duration
from srtm.text.errors import Exit, UnavailableError, UsageError

_ADDRESS = click.option(
    "--journey-address",
    "address",
    envvar="SRTM_JOURNEY_ADDRESS",
    default="127.0.0.1:4198",
    show_default=True,
    show_envvar=True,
    help="HTTP address of `srtm journey run`.",
)
_FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.group("journey", cls=LazyGroup)
def journey() -> None:
    """Keep one latency SLO from publisher to consumer: measure it, and see where the time goes.

    \b
      srtm journey check journeys.toml
      srtm journey run journeys.toml
      srtm journey show
      srtm journey plan journeys.toml
      srtm journey explain
    """


@journey.command("run")
@_FILE
@click.option(
    "--deployment",
    envvar="SRTM_DEPLOYMENT",
    default="srtm-data",
    show_default=True,
    show_envvar=True,
    help="Data path of the deployment that holds the topics' contracts, if [journeys] names no "
    "distributor.",
)
@log_level_option
def run(file: Path, deployment: str, log_level: str) -> None:
    """Measure the journeys of FILE, and split their SLOs over the legs.

    Gateways are asked when messages arrived; consumers with journey-address in [consumer] tell when
    they were done with them. /ping, /stats and /metrics are at http-address of [journeys]
    (127.0.0.1:4198). A journey with split = "auto" sets the SLO of its topic's contract, and tells
    those of bridge and group to their programs, which ask for them. SIGTERM ends it; whatever it
    measures goes on as it is.
    """
    log_to_stderr(log_level)
    from srtm.journey.file import read_journeys
    from srtm.journey.service import Service

    raise click.exceptions.Exit(asyncio.run(Service(read_journeys(file), file, deployment).run()))


@journey.command("check")
@_FILE
def check(file: Path) -> None:
    """Check FILE and the files that it names, ask the gateways, and show what can be promised.

    Nothing is changed. Exit code 2: a file is wrong; 3: the files are right, but a journey cannot
    be measured or kept as things are.
    """
    from srtm.journey.check import check_files, check_journeys
    from srtm.journey.file import read_journeys

    journeys = read_journeys(file)
    check_files(journeys, file)
    findings = check_journeys(journeys)
    for each in findings:
        click.echo(str(each))
    if any(each.is_fault for each in findings):
        raise click.exceptions.Exit(Exit.UNAVAILABLE)


@journey.command("show")
@_ADDRESS
@client_files("journey", "`srtm journey run`")
@click.option("--journey", "name", default="", help="Only this journey.")
@looks_options
@click.option("--json", "as_json", is_flag=True, help="One JSON list for each look.")
def show(
    address: str,
    journey_files: ClientFiles,
    name: str,
    looks: Looks,
    as_json: bool,
) -> None:
    """Show each journey's age at the end of its way, what is promised of it, and where time goes.

    \b
    messages        since srtm journey run began; those of the legs are of the last minute
    p50, p99, late  measured over the last minute: from a message's arrival at the gateway until the
                    consumer's sink had it, and the share that took longer than the target
    promised        no more than this share is late, whatever depends on what, by each leg alone
    independent     the share that would be late if no leg depended on another
    budget          what is left of the share that may be late over the SLO's window
    """
    service = service_at(address, journey_files, "--journey-token-file")
    for _ in looks:
        found = _asked(service, name)
        if as_json:
            click.echo(json.dumps(found))
        else:
            _show(found)


@journey.command("plan")
@_FILE
@client_files("journey", "`srtm journey run`")
@click.option("--journey", "name", default="", help="Only this journey.")
@click.option(
    "--mu",
    type=click.FloatRange(min=0, min_open=True),
    help="Messages/s that one consumer can serve.  [default: as its controller tells, or its file]",
)
@click.option(
    "--startup",
    metavar="DURATION",
    help="Time from a consumer's launch to its work.  [default: as its controller tells, or 5s]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON list.")
def plan(
    file: Path,
    journey_files: ClientFiles,
    name: str,
    mu: float | None,
    startup: str | None,
    as_json: bool,
) -> None:
    """Find the SLO that each part of FILE's journeys should have, so that the whole is kept and
    costs least. Nothing is changed.

    `srtm journey run` tells what each leg does now, and how many messages came in the last quarter
    of an hour. The group's policy is simulated on these for a dozen SLOs; that takes a minute or
    more.
    """
    from srtm.journey.file import read_journeys
    from srtm.journey.planning import plan_journeys

    try:
        seconds = None if startup is None else parse_duration(startup)
    except ValueError as error:
        raise UsageError(f"--startup: {error}") from None
    journeys = read_journeys(file)
    service = service_at(str(journeys.table.http_address), journey_files, "--journey-token-file")
    told = {each["journey"]: each for each in _asked(service, name)}
    plan_journeys(journeys, told, mu, seconds, as_json)


@journey.command("explain")
@_ADDRESS
@client_files("journey", "`srtm journey run`")
@click.option("--journey", "name", default="", help="Only this journey.")
@click.option("--json", "as_json", is_flag=True, help="One JSON list.")
def explain(address: str, journey_files: ClientFiles, name: str, as_json: bool) -> None:
    """Show how each journey's SLO is split over its legs, which SLO each leg keeps, and the last
    decisions with their reasons."""
    from srtm.journey.explained import explanations
    from srtm.text.terminal import show as show_tables

    found = _asked(service_at(address, journey_files, "--journey-token-file"), name)
    if as_json:
        kept = ("journey", "slo", "split", "told")
        click.echo(json.dumps([{key: each[key] for key in kept} for each in found]))
    else:
        show_tables(*explanations(found))


def _asked(service: Endpoint, name: str) -> list[dict[str, Any]]:
    """Raises SrtmError."""
    found = get_json(service, "/stats").get("journeys")
    if not isinstance(found, list):
        raise UnavailableError(f"{service.address} is no `srtm journey run`")
    chosen = [each for each in found if not name or each.get("journey") == name]
    if name and not chosen:
        known = ", ".join(str(each.get("journey")) for each in found)
        raise UsageError(f"there is no journey {name}; there are {known}")
    return chosen


def _show(found: list[dict[str, Any]]) -> None:
    from srtm.journey.shown import tables
    from srtm.text.terminal import show as show_tables

    show_tables(*tables(found))
