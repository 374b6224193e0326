"""`srtm testbed`."""

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from distributor.placement.words import counted
from srtm.deploy.command import STOP_SIGNALS
from srtm.errors import Exit, SrtmError
from srtm.terminal import Column, Table, show
from srtm.testbed.testbed import HostStatus, Say, Testbed, open_testbed

_FILE = click.argument("file", type=click.Path(path_type=Path))
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def testbed() -> None:
    """Bring up the deployment of a FILE with [[host]] tables, on all of its hosts; cut hosts off
    and do worse to them; take all of it down.

    Each command may be repeated: it does what is left to do. Exit code 0: all hosts are as asked
    for; otherwise a line for each host that is not.
    """


@testbed.command()
@_FILE
@click.option("--check", is_flag=True, help="Only check FILE; touch no host.")
def up(file: Path, check: bool) -> None:
    """Start what is not running yet on each host of FILE, all hosts at the same time."""
    found = open_testbed(file)
    if check:
        plan = found.inventory.plan
        click.echo(
            f"{file} is correct: {counted(len(plan.hosts), 'host')}, "
            f"{counted(len(plan.brokers), 'broker')}, {counted(len(plan.topics), 'topic')}"
        )
        return
    if found.lacks_cores:
        click.echo("srtm testbed: hosts are not pinned: this machine has too few cores", err=True)
    with _stopping(found), _progress(found) as say:
        found.up(say)


@testbed.command()
@_FILE
@_JSON
def status(file: Path, as_json: bool) -> None:
    """What runs on each host, its versions, cores, and by how much its clock is off."""
    rows = open_testbed(file).status()
    if as_json:
        click.echo(json.dumps([each.document() for each in rows]))
    else:
        show(_table(rows))
    if any(each.state != "up" for each in rows):
        raise click.exceptions.Exit(Exit.FAILED)


@testbed.command()
@_FILE
@click.argument("host", required=False)
@click.option("--program", default="", help="b1-gateway, distributor, ...; else srtm up.")
@click.option("--lines", type=click.IntRange(1, 100_000), default=20, show_default=True)
def logs(file: Path, host: str | None, program: str, lines: int) -> None:
    """The last lines that were logged on HOST, or on every host."""
    found = open_testbed(file)
    names = [found.inventory.host(host).name] if host else list(found.hosts)
    failures = []
    for name in names:
        try:
            text = found.logs(name, program, lines)
        except SrtmError as error:
            failures.append(f"{name}: {error}")
            continue
        for line in text.splitlines():
            click.echo(f"{name} | {line}" if host is None else line)
    if failures:
        raise SrtmError("; ".join(failures))


@testbed.command()
@_FILE
@click.option("--purge", is_flag=True, help="Remove what brokers and distributor kept, too.")
def down(file: Path, purge: bool) -> None:
    """End all that runs on the hosts of FILE, and heal and remove their networks."""
    found = open_testbed(file)
    with _progress(found) as say:
        found.down(say, purge=purge)


def _table(rows: list[HostStatus]) -> Table:
    table = Table(
        Column("host", text=True),
        Column("kind", 2, text=True),
        Column("address", 1, text=True),
        Column("state", text=True),
        Column("runs", 1, text=True, sentence=True),
        Column("cores", 3),
        Column("srtm", 4, text=True),
        Column("nsqd", 4, text=True),
        Column("clock", 3, text=True),
        Column("why", text=True, sentence=True),
    )
    for row in rows:
        facts = row.facts
        table.add(
            row.host.name,
            row.host.kind,
            row.host.address,
            row.state,
            ", ".join(row.runs),
            str(facts.cores) if facts else "",
            facts.srtm if facts else "",
            facts.nsqd.removeprefix("nsqd v").split(" ")[0] if facts else "",
            str(facts.clock) if facts else "",
            row.why,
        )
    return table


@contextmanager
def _stopping(found: Testbed) -> Iterator[None]:
    """Ctrl-C ends `up` between two steps: what runs then stays."""
    before = {each: signal.signal(each, lambda *_: found.ask_stop()) for each in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress(found: Testbed) -> Iterator[Say]:
    """A line for each host as it is done; on a terminal a moving one for each that is not."""
    console = Console(stderr=True)
    if not console.is_terminal:
        lock = threading.Lock()

        def say(host: str, line: str) -> None:
            with lock:
                click.echo(f"{host}: {line}", err=True)

        yield say
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        tasks = {name: progress.add_task(name, total=1) for name in found.hosts}

        def tell(host: str, line: str) -> None:
            progress.console.print(f"{host}: {line}", highlight=False)
            if host in tasks:
                progress.update(tasks[host], completed=1, visible=False)

        yield tell
