"""`srtm broker capacity`."""

import contextlib
from dataclasses import dataclass
from typing import Any

import click

from distributor.capacity.report import Report, shown
from distributor.capacity.rounds import Rounds, searched, settings_for
from distributor.capacity.search import Search, least_rate
from distributor.remote import Remote, print_json, remote_options
from srtm.http.nsqd import stats
from srtm.limits.contract import MAX_RATE
from srtm.limits.slo import SLO
from srtm.load.settings import MAX_MESSAGES, Arrivals, LoadSettings
from srtm.options.model import parsed
from srtm.text.duration import format_duration, parse_duration
from srtm.text.errors import SrtmError, UnavailableError, UsageError
from srtm.text.terminal import show
from srtm.text.words import number, rate

_START = 10
"""messages/s of each publisher in the first round, as SRTM's publishers send (section 6)"""


@click.command()
@click.argument("name", required=False)
@click.argument("figure", required=False, type=click.FloatRange(0, MAX_RATE), metavar="[N]")
@click.option(
    "--nsqd-tcp-address",
    "tcp",
    metavar="HOST:PORT",
    help="TCP address of the gateway to publish to, instead of NAME.",
)
@click.option(
    "--nsqd-http-address",
    "http",
    metavar="HOST:PORT",
    help="HTTP address of the gateway that --nsqd-tcp-address names.",
)
@click.option(
    "--slo",
    metavar="P@DURATION",
    callback=parsed(SLO.parse),
    help="Such as 0.99@1ms.",
)
@click.option("--publishers", default=100, show_default=True, help="Connections that publish.")
@click.option(
    "--batch", default=1, show_default=True, help="Messages that a publisher sends at one instant."
)
@click.option("--message-size", default=100, show_default=True, help="Bytes of a body, 24 or more.")
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "periodic"]),
    default="poisson",
    show_default=True,
    help="Intended send times: Poisson, or evenly spaced with a random phase.",
)
@click.option(
    "--round",
    "seconds",
    metavar="DURATION",
    default="10s",
    show_default=True,
    callback=parsed(parse_duration),
    help="How long each round measures a rate.",
)
@click.option("--most", type=int, metavar="RATE", help="Highest rate to try, in messages/s.")
@click.option("--set", "store", is_flag=True, help="Store the figure at the distributor.")
@remote_options
def capacity(
    name: str | None,
    figure: float | None,
    tcp: str | None,
    http: str | None,
    store: bool,
    remote: Remote,
    as_json: bool,
    **how: Any,
) -> None:
    """Measure how many messages/s broker NAME holds within an SLO, or store the known capacity N.

    \b
      srtm broker capacity b1 --slo 0.99@1ms --set
      srtm broker capacity b1 5000
      srtm broker capacity --slo 0.99@5ms \\
        --nsqd-tcp-address 127.0.0.1:4150 --nsqd-http-address 127.0.0.1:4151

    The command loads the broker through its gateway, on a topic without a contract that it deletes
    afterwards. It doubles the rate until the broker misses the SLO, then narrows the bracket to
    5 %. A rate holds if the SLO is kept in two rounds out of three. Latency counts from sending to
    receipt by a consumer that is always ready. This process both sends and receives; if it cannot
    keep up, or if --most ends the search, the result is a lower bound. The traffic of other topics
    goes on; the result is what is left beside it.
    """
    if figure is not None:
        if name is None or tcp or http or store or how["slo"]:
            raise UsageError("srtm broker capacity NAME N stores N: give nothing to measure")
        _set(name, figure, remote, as_json)
        return
    if how["slo"] is None:
        raise UsageError("--slo: within which SLO is it measured? such as 0.99@1ms; or give N")
    asked = _Asked(**how)
    tcp, http = _addresses(name, tcp, http, store, remote)
    report = _measured(asked, name, tcp, http, store, as_json)
    if store and report.found.rate:
        _store(remote, name, tcp, http, report.found.rate)
    if as_json:
        print_json(report.document())
    else:
        show(report.table())
    if report.warning:
        click.echo(report.warning, err=True)
    if not report.found.rate:
        raise SrtmError(report.verdict)
    if not as_json:
        click.echo(report.verdict + ("; stored" if store else ""))


@dataclass(frozen=True, slots=True)
class _Asked:
    """How a broker is measured. seconds: of a round; most: messages/s at the most, None: as many as
    a round can count."""

    slo: SLO
    publishers: int
    batch: int
    message_size: int
    arrivals: Arrivals
    seconds: float
    most: int | None

    def load(self, tcp_address: str) -> LoadSettings:
        """The load of each round. Raises UsageError."""
        return settings_for(
            tcp_address,
            self.seconds,
            self.publishers,
            batch=self.batch,
            message_bytes=self.message_size,
            arrivals=self.arrivals,
        )

    def search(self, load: LoadSettings) -> Search:
        """Raises UsageError."""
        least = least_rate(self.slo.allowed_late_share, self.seconds)
        limit = int(MAX_MESSAGES / load.seconds)
        most = limit if self.most is None else self.most
        if not least <= most <= limit:
            raise UsageError(
                f"--most {most}: with rounds of {format_duration(self.seconds)} and {self.slo} it "
                f"must be {number(least)} to {rate(limit)}: with less a round has too few late "
                "messages to tell"
            )
        return Search(min(max(_START * self.publishers, least), most), least, most)


def _measured(
    asked: _Asked, name: str | None, tcp: str, http: str, store: bool, as_json: bool
) -> Report:
    """Raises UsageError, UnavailableError, KeyboardInterrupt."""
    load = asked.load(tcp)
    search = asked.search(load)
    with Rounds(load, http, asked.slo) as rounds, shown(rounds.measure, as_json) as measure:
        if store and (declared := rounds.declared_capacity):
            raise UsageError(f"--set: {_declares(name, declared)}")
        found, done = searched(search, measure)
        others = rounds.others()
    return Report(name or tcp, asked.slo, found, done, others)


def _declares(name: str | None, capacity: float) -> str:
    return (
        f"the gateway of {name} registers with a capacity of {number(capacity)} of its own, which "
        "would stand over this one: take broker-capacity out of its flags, file or environment, or "
        "capacity out of the file of srtm up, and start it again"
    )


def _set(name: str, capacity: float, remote: Remote, as_json: bool) -> None:
    """A figure that somebody knows. Raises UsageError."""
    tcp, http = _addresses(name, None, None, True, remote)
    with contextlib.suppress(UnavailableError):  # a gateway that is away says so when it registers
        ours = stats(http).get("srtm", {})
        if declared := (ours.get("distributor") or {}).get("capacity"):
            raise UsageError(f"broker {name}: {_declares(name, declared)}")
    _store(remote, name, tcp, http, capacity)
    if as_json:
        print_json({"broker": name, "capacity": capacity})
    else:
        click.echo(f"broker {name} holds {rate(capacity)}; stored")


def _store(remote: Remote, name: str | None, tcp: str, http: str, capacity: float) -> None:
    body = {"name": name, "tcp_address": tcp, "http_address": http, "capacity": capacity}
    remote.call("POST", "brokers", body=body)


def _addresses(
    name: str | None, tcp: str | None, http: str | None, store: bool, remote: Remote
) -> tuple[str, str]:
    """The TCP and the HTTP address of the gateway. Raises UsageError."""
    if name is None and tcp and http:
        if store:
            raise UsageError("--set stores the figure of a broker by its NAME: give that")
        return tcp, http
    if name is None or tcp or http:
        raise UsageError("give NAME, or both --nsqd-tcp-address and --nsqd-http-address")
    for each in remote.call("GET", "brokers")["brokers"]:
        if each["name"] == name:
            return each["tcp_address"], each["http_address"]
    raise UsageError(f"broker {name} is not registered; srtm broker list shows those that are")
