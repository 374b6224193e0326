"""`srtm broker scale`."""

import json
import logging
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from distributor.remote import Remote
from srtm.deploy.scaling.decision import Decision, Step
from srtm.deploy.scaling.file import ScaleFile
from srtm.deploy.scaling.run import Run
from srtm.host.files import locked
from srtm.host.stop import Stop
from srtm.http.service import ClientFiles, service_at
from srtm.options.logs import log_to_stderr
from srtm.text.errors import SrtmError, UnavailableError

log = logging.getLogger("srtm.broker.scale")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be done now, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print each new decision as a JSON line.")
def scale(file: Path, dry_run: bool, as_json: bool) -> None:
    """Start brokers where publishers have none, and end them once nobody needs them.

    \b
    FILE is TOML:
      [scale]
      max = 3                # at most so many more brokers
      capacity = 5000        # messages/s that each holds; or slo = "0.99@5ms": measured
      [elsewhere]
      distributor-address = "127.0.0.1:4180"

    One broker is started at a time, as srtm up of a deployment of its own on this host. Publishers
    that had no broker get it. Once the others have room for all that it has, for unneeded-for, it
    is drained: its publishers are placed on the others, and it ends when its shares are given back
    and consumers have taken what its nsqd holds. Brokers run on when this command ends, and the
    next one takes them over.
    """
    scaled = ScaleFile(file)
    address, files = scaled.plan.distributor_at or ("", ClientFiles())
    remote = Remote(service_at(address, files, f"{file}: [elsewhere]"))
    if dry_run:
        click.echo(_line(Run(scaled, remote).would(), as_json))
        return
    log_to_stderr("info")
    with _alone(scaled):
        _follow(Run(scaled, remote), scaled.scale.interval, as_json)


@contextmanager
def _alone(file: ScaleFile) -> Iterator[None]:
    """Raises UnavailableError while another command scales by the same data path."""
    try:
        file.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(file.folder / "scale.lock"):
            yield
    except BlockingIOError:
        raise UnavailableError(f"another srtm broker scale runs in {file.folder}") from None
    except OSError as error:
        raise UnavailableError(f"{file.folder}: {error.strerror}") from None


def _follow(run: Run, interval_seconds: float, as_json: bool) -> None:
    """Look, do and tell until a signal says stop."""
    stop = Stop()
    stop.heed(signal.SIGINT, signal.SIGTERM)
    said = fault = ""
    while not stop.asked:
        try:
            decision = run.step()
        except SrtmError as error:
            if fault != (fault := str(error)):
                log.error("%s; it is tried again", error)
        else:
            fault = ""
            # A reason of which only figures change is said once.
            kind = re.sub(r"\d[\d,.]*", "#", f"{decision.step} {decision.reason}")
            if said != (said := kind):
                click.echo(_line(decision, as_json))
        stop.wait(interval_seconds)


def _line(decision: Decision, as_json: bool) -> str:
    if as_json:
        return json.dumps(
            {"step": decision.step, "broker": decision.broker, "reason": decision.reason}
        )
    if decision.step in (Step.NONE, Step.PLACE):
        return decision.reason
    return f"{decision.step} {decision.broker or 'a broker'}: {decision.reason}"
