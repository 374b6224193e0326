"""`srtm testbed`."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from srtm.cli.group import LazyGroup
from srtm.deploy.up_command import STOP_SIGNALS
from srtm.host.stop import Stop
from srtm.options.model import parsed
from srtm.testbed import links
from srtm.testbed.faults import FAULTS, Asked, begin
from srtm.testbed.status import HostStatus
from srtm.testbed.testbed import Say, Testbed, open_testbed
from srtm.text.duration import parse_duration
from srtm.text.errors import Exit, SrtmError, UnavailableError, UsageError
from srtm.text.terminal import Column, Table, show
from srtm.text.words import counted

_FILE = click.argument("file", type=click.Path(path_type=Path))
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(cls=LazyGroup)
def testbed() -> None:
    """Bring up the deployment of a FILE with [[host]] tables on all of its hosts, inject failures,
    and take it down.

    Each command may be repeated: it does what is left to do. Exit code 0: all hosts are in the
    state that was asked for; otherwise there is a line for each host that is not.
    """


@testbed.command()
@_FILE
@click.option("--check", is_flag=True, help="Only check FILE; touch no host.")
def up(file: Path, check: bool) -> None:
    """Start all hosts of FILE at the same time; what already runs is left alone."""
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
    with _stopping(found.ask_stop), _progress(found) as say:
        found.up(say)


@testbed.command()
@_FILE
@_JSON
def status(file: Path, as_json: bool) -> None:
    """Show what runs on each host, its versions, cores and clock error, and which of its links are
    cut or slow."""
    found = open_testbed(file)
    rows = found.status()
    done = {
        each.host.name: links.condition(found, each.host.name) if each.facts else []
        for each in rows
    }
    if as_json:
        click.echo(json.dumps([each.document() | {"links": done[each.host.name]} for each in rows]))
    else:
        show(_table(rows, done))
    if any(each.state != "up" for each in rows):
        raise click.exceptions.Exit(Exit.FAILED)


@testbed.command("exec", context_settings={"allow_interspersed_args": False})
@_FILE
@click.argument("host")
@click.argument("command", nargs=-1, required=True)
def exec_(file: Path, host: str, command: tuple[str, ...]) -> None:
    """Run COMMAND on HOST, such as srtm load on a host of [[load]]. COMMAND uses this terminal, and
    its exit code is that of srtm testbed exec."""
    words = open_testbed(file).calling(host, command[1:] if command[0] == "--" else command)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        raise UnavailableError(f"{words[0]}: {error.strerror}") from None


@testbed.command()
@_FILE
@click.argument("host", required=False)
@click.option("--program", default="", help="b1-gateway, distributor, ...; default: srtm up.")
@click.option(
    "--lines",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="Lines of each host.",
)
def logs(file: Path, host: str | None, program: str, lines: int) -> None:
    """Show the last lines that were logged on HOST, or on every host."""
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
@click.option("--purge", is_flag=True, help="Also remove the data of brokers and distributor.")
def down(file: Path, purge: bool) -> None:
    """End all programs on the hosts of FILE, heal their links and remove their networks."""
    found = open_testbed(file)
    with _progress(found) as say:
        found.down(say, purge=purge)


@testbed.command()
@_FILE
@click.argument("host")
@click.argument("other", required=False, default="")
@click.option("--one-way", is_flag=True, help="Lose only what HOST sends.")
def cut(file: Path, host: str, other: str, one_way: bool) -> None:
    """Cut HOST off from OTHER, or from all others and this machine, until srtm testbed heal."""
    found = open_testbed(file)
    links.cut(found, host, other, one_way=one_way)
    click.echo(
        f"what {host} sends to {other or 'all others'} is lost"
        if one_way
        else f"nothing passes between {host} and {other or 'all others'}"
    )


@testbed.command()
@_FILE
@click.argument("host")
@click.option("--bandwidth", default="", help="Bandwidth for all that HOST sends, such as 1mbit.")
@click.option(
    "--delay",
    metavar="DURATION",
    callback=parsed(parse_duration),
    help="Delay of each packet, in each direction, such as 20ms.",
)
def slow(file: Path, host: str, bandwidth: str, delay: float | None) -> None:
    """Limit or delay the link of HOST, until srtm testbed heal."""
    if not bandwidth and not delay:
        raise UsageError("srtm testbed slow: give --bandwidth or --delay")
    how = links.slow(open_testbed(file), host, bandwidth, delay or 0.0)
    click.echo(f"the link of {host} is slow" + (f" (delayed by {how})" if how else ""))


@testbed.command()
@_FILE
@click.argument("host", required=False, default="")
def heal(file: Path, host: str) -> None:
    """Undo srtm testbed cut and slow on the links of HOST, or of all hosts."""
    links.heal(open_testbed(file), host)
    click.echo(f"the links of {host or 'all hosts'} are whole")


_LIST = "".join(f"  {name:<20}{each.summary}\n" for name, each in FAULTS.items())


@testbed.command(
    help="Inject FAULT on HOST for the time of --for; Ctrl-C ends it at once.\n\n"
    f"\b\nFAULT is one of:\n{_LIST}"
)
@_FILE
@click.argument("name", type=click.Choice(list(FAULTS)), metavar="FAULT")
@click.argument("host")
@click.option(
    "--program",
    default="",
    help="Program that the fault hits: b1-gateway, b1-nsqd, distributor, ...",
)
@click.option("--other", default="", help="The other host, for a fault between two hosts.")
@click.option(
    "--topic", default="", help="Topic that the slow reader consumes (fault slow-reader)."
)
@click.option(
    "--for",
    "seconds",
    default="10s",
    show_default=True,
    metavar="DURATION",
    callback=parsed(parse_duration),
    help="How long the fault lasts.",
)
def fault(
    file: Path, name: str, host: str, program: str, other: str, topic: str, seconds: float
) -> None:
    asked = Asked(host, program, other, topic)
    stop = Stop()
    with _stopping(stop.ask), begin(open_testbed(file), name, asked) as what:
        click.echo(what)
        click.echo(f"srtm testbed: for {seconds:g} s; Ctrl-C ends it at once", err=True)
        stop.wait(seconds)


def _table(rows: list[HostStatus], done: dict[str, list[str]]) -> Table:
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
        Column("links", text=True, sentence=True),
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
            "; ".join(done[row.host.name]),
            row.why,
        )
    return table


@contextmanager
def _stopping(ask_stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C ends `up` between two steps, so that what runs then stays, and a fault so that nothing
    of it is left."""
    before = {each: signal.signal(each, lambda *_: ask_stop()) for each in STOP_SIGNALS}
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
