"""`srtm up`."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from srtm.deploy.certificates import Effect
from srtm.deploy.file import read_plan
from srtm.deploy.shown import addresses_table
from srtm.deploy.up import Up
from srtm.deployment.document import Deployment
from srtm.text.errors import Exit, UsageError
from srtm.text.terminal import show
from srtm.text.words import counted

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""each ends a deployment in order: Ctrl-C, a service manager, a terminal that was closed"""


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Only check FILE and the programs; start nothing.")
@click.option(
    "--no-topics", is_flag=True, help="Leave out FILE's topics; those set at run time stay."
)
def up(file: Path, check: bool, no_topics: bool) -> None:
    """Run the deployment of a TOML FILE in the foreground until Ctrl-C or SIGTERM.

    If a program fails to start, the whole deployment ends. A program that dies later is started
    again, once a minute if it keeps dying, while the others go on.
    """
    plan = read_plan(file)
    if plan.hosts:
        raise UsageError(f"{file} has [[host]] tables: srtm testbed up {file} brings up all hosts")
    run = Up(plan, _say, topics=not no_topics)
    if check:
        faults = run.check()
        for each in faults:
            _say(f"warning: {each}" if each.effect is Effect.WARNS else str(each))
        if any(each.effect > Effect.WARNS for each in faults):
            raise click.exceptions.Exit(Exit.USAGE)
        click.echo(
            f"{file} is correct: {counted(len(plan.brokers), 'broker')}, "
            f"{counted(len(plan.topics), 'topic')}"
        )
        return
    with _stopping(run.ask_stop):
        run.run(_show_up)


def _show_up(deployment: Deployment) -> None:
    with contextlib.suppress(OSError):
        show(addresses_table(deployment))
    _say(f"deployment {deployment.name} is up (pid {deployment.pid}); Ctrl-C ends it")


def _say(line: str) -> None:
    """A terminal that went away must not keep us from ending the children in order."""
    with contextlib.suppress(OSError):
        click.echo(f"srtm up: {line}", err=True)


@contextlib.contextmanager
def _stopping(ask_stop: Callable[[], None]) -> Iterator[None]:
    """SIGHUP that is ignored stays so: that is what nohup is for. A shell without a terminal starts
    what it runs in the background with SIGINT ignored, and there it is meant all the same."""
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    heeded = [each for each in STOP_SIGNALS if not (nohup and each is signal.SIGHUP)]
    before = {number: signal.signal(number, lambda *_: ask_stop()) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
