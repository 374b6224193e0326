"""`srtm correlate stream`."""

import logging
import signal
from contextlib import nullcontext
from pathlib import Path

import click

from srtm.correlation.options import GroupOptions, group_options
from srtm.correlation.session import spark_session
from srtm.correlation.stream.state import STATE, only_one
from srtm.host.files import MOST_SETTINGS_BYTES, read_file
from srtm.options.model import duration_option
from srtm.text.errors import UsageError


@click.command("stream")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder of srtm gateway --trace-dir; with --kafka, folder for the arrivals from Kafka.",
)
@click.option("--kafka", metavar="HOST:PORT[,...]", help="Take arrivals from this Kafka.")
@click.option(
    "--kafka-topic",
    metavar="NAME",
    help="Kafka topic of arrivals, one JSON object each.",
)
@click.option(
    "--kafka-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Properties of Kafka's Java client, such as security.protocol=SASL_SSL.",
)
@click.option("--skip-lost", is_flag=True, help="Go on where Kafka has removed unread records.")
@duration_option("--every", "1m", "How often the trace is read.")
@duration_option("--history", "24h", "How far back from the newest arrival groups are searched.")
@group_options
def stream(
    trace: Path,
    asked: GroupOptions,
    kafka: str | None,
    kafka_topic: str | None,
    kafka_config: Path | None,
    skip_lost: bool,
    every: float,
    history: float,
) -> None:
    """Keep the groups of a trace current until SIGTERM or Ctrl-C; srtm correlate show shows them.

    With --kafka, records of a Kafka topic become files of the trace, each record once even if this
    command is killed. A record is a JSON object: {"time": ns since 1970, "topic", "publisher",
    "broker", "messages", "bytes", "wait": ns or null, "outcome": "admitted"|"rejected"|"closed"}.
    Other records are left out, counted and shown.
    """
    _refuse_slips(trace, kafka, kafka_topic, kafka_config, skip_lost)
    for flag, seconds in (("--every", every), ("--history", history)):
        if seconds <= 0:
            raise UsageError(f"{flag}: more than 0")
    settings = read_properties(kafka_config) if kafka_config else {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    mine = nullcontext() if kafka is None else only_one(trace / STATE)
    try:
        with only_one(asked.out), mine, spark_session(kafka=kafka is not None) as spark:
            from srtm.correlation.stream.current import Current, follow
            from srtm.correlation.stream.kafka import Intake, Source

            # Of a batch that fails, or is stopped, the query tells what there is to tell.
            logging.getLogger("py4j").setLevel(logging.CRITICAL)
            current = Current(spark, asked.request(trace, history_seconds=history), every, _say)
            intake = None
            if kafka and kafka_topic:
                source = Source(kafka, kafka_topic, settings, skip_lost)
                intake = Intake(spark, source, trace, 2 * history, _say)
            follow(current, intake)
    except KeyboardInterrupt:
        _say("ended")


def _refuse_slips(
    trace: Path,
    kafka: str | None,
    kafka_topic: str | None,
    kafka_config: Path | None,
    skip_lost: bool,
) -> None:
    if (kafka is None) != (kafka_topic is None):
        raise UsageError("--kafka and --kafka-topic go together")
    if kafka is None and (kafka_config is not None or skip_lost):
        raise UsageError("--kafka-config and --skip-lost go with --kafka")
    if kafka is None and not trace.is_dir():
        raise UsageError(f"--trace {trace}: no such folder")


def _say(line: str) -> None:
    click.echo(line, err=True)


def read_properties(path: Path) -> dict[str, str]:
    """Lines of name=value; # begins a comment. Raises UsageError."""
    try:
        lines = read_file(path, MOST_SETTINGS_BYTES).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--kafka-config {path}: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, sign, value = line.partition("=")
            if not sign or not name.strip():
                raise UsageError(f"--kafka-config {path}:{number}: write name=value")
            found[name.strip()] = value.strip()
    return found
