"""`srtm distributor`, and copies of its store."""

import asyncio
from dataclasses import asdict
from pathlib import Path

import click
from click.core import ParameterSource

from distributor.http.server import Server
from distributor.options import DistributorOptions
from distributor.remote import print_json
from distributor.store.copies import Contents, back_up, restore
from srtm.cli.group import LazyGroup
from srtm.options.logs import log_to_stderr
from srtm.options.model import add_options, read_options
from srtm.text.errors import UsageError
from srtm.text.words import counted

_FILE = click.argument("file", type=click.Path(path_type=Path))
_STORE = click.option(
    "--store",
    envvar="SRTM_DISTRIBUTOR_STORE",
    default=DistributorOptions.model_fields["store"].default,
    show_default=True,
    show_envvar=True,
    help="Path of a SQLite file, or postgresql://HOST/NAME.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(
    "distributor",
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"auto_envvar_prefix": "SRTM_DISTRIBUTOR"},
)
@add_options(DistributorOptions)
@click.pass_context
def distributor(context: click.Context, /, **_: object) -> None:
    """Run the Load Distributor: it places the publishers of topics on brokers.

    Gateways report to it and get their shares of each topic's contract; publishers learn from it
    where to connect. Every change that it has acknowledged survives a crash. Of two distributors on
    one store one leads; the other answers 503 and takes over if the leader is gone.

    \b
      srtm distributor --http-address=127.0.0.1:4180 --store=/var/lib/srtm/distributor.db

    /v1/openapi.json describes the API; /metrics has the metrics. SIGTERM ends the distributor.
    """
    if context.invoked_subcommand is not None:
        for name in context.params:
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                flag, command = "--" + name.replace("_", "-"), context.invoked_subcommand
                if name == "store":
                    raise UsageError(f"{flag} stands before {command}: write it behind")
                raise UsageError(f"{flag}: {command} has no such option")
        return
    options = read_options(DistributorOptions, context)
    log_to_stderr(options.log_level)
    asyncio.run(Server(options).run())


@distributor.command("backup")
@_FILE
@_STORE
@_JSON
def backup(file: Path, store: str, as_json: bool) -> None:
    """Copy the store into FILE, as it is at one instant; the distributor may run meanwhile.

    FILE is a SQLite store, whatever the store is, and only its owner may read it: it proves to
    gateways who leads them.

    \b
      srtm distributor backup --store=/var/lib/srtm/distributor.db monday.db
    """
    _tell(back_up(store, file), f"the store is copied to {file}", as_json)


@distributor.command("restore")
@_FILE
@_STORE
@_JSON
def restore_command(file: Path, store: str, as_json: bool) -> None:
    """Make a store of FILE, which `backup` has made. There may be no store there yet.

    Stop the distributor that led with the other store before you start one with this. For a lease
    and a third it grants nothing and takes nothing away, while gateways tell what they hold, which
    may be newer. A store can so move from SQLite to PostgreSQL, and back.

    \b
      srtm distributor restore --store=postgresql://db/srtm monday.db
    """
    _tell(restore(file, store), f"{file} is restored", as_json)


def _tell(found: Contents, line: str, as_json: bool) -> None:
    if as_json:
        print_json(asdict(found))
        return
    has = ", ".join(
        counted(number, noun)
        for number, noun in (
            (found.brokers, "broker"),
            (found.topics, "topic"),
            (found.publishers, "publisher"),
        )
    )
    click.echo(f"{line}: {has}, epoch {found.epoch:,}")
