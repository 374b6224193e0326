"""`srtm bridge`."""

import logging
from pathlib import Path

import click

from srtm.bridge.file import read_bridge_file
from srtm.cli.group import LazyGroup
from srtm.options.logs import log_level_option, log_to_stderr
from srtm.text.errors import Exit, UnavailableError


@click.group("bridge", cls=LazyGroup)
def bridge() -> None:
    """Carry NSQ topics to Kafka and Kafka topics to NSQ, at least once.

    \b
      srtm bridge check bridge.toml
      srtm bridge run bridge.toml
    """


@bridge.command("run")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@log_level_option
def run(file: Path, log_level: str) -> None:
    """Run all routes of FILE.

    After SIGTERM the bridge takes no new messages, waits for the answers to messages under way, and
    commits offsets. SIGHUP reads FILE again and leaves unchanged routes alone. /ping, /stats and
    /metrics are at http-address of [bridge] (127.0.0.1:4190).
    """
    log_to_stderr(log_level)
    parsed = read_bridge_file(file)
    _require_client()
    from srtm.bridge.check import check_settings
    from srtm.bridge.service import run as run_service

    if log_level == "debug":
        logging.getLogger("srtm.librdkafka").setLevel("DEBUG")
    check_settings(parsed, str(file))
    raise click.exceptions.Exit(run_service(file))


@bridge.command("check")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def check(file: Path) -> None:
    """Check FILE, ask NSQ and Kafka, and show what would run. Nothing is changed.

    Exit code 2: FILE is wrong; 3: FILE is right, but something that it needs is not there.
    """
    parsed = read_bridge_file(file)
    _require_client()
    from srtm.bridge.check import check as check_file
    from srtm.bridge.check import check_settings

    check_settings(parsed, str(file))
    findings = check_file(parsed)
    for each in findings:
        click.echo(str(each))
    if any(each.fault for each in findings):
        raise click.exceptions.Exit(Exit.UNAVAILABLE)


def _require_client() -> None:
    """Raises UnavailableError."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise UnavailableError(
            "Kafka's client is not installed: pip install 'srtm[kafka]'"
        ) from None
