"""The distributor as commands see it: JSON over HTTP, every failure one line."""

import json
import logging
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import click

from srtm.http.client import Answer, Endpoint, TlsFailed, request
from srtm.http.service import ClientFiles, service_at
from srtm.options.client_files import client_files, on_command_line
from srtm.text.address import addresses_of
from srtm.text.errors import SrtmError, UnavailableError, UsageError

logging.getLogger("srtm.tls").addHandler(logging.NullHandler())
"""so that a command, which keeps no log, says nothing of a certificate that ends soon"""

Command = TypeVar("Command", bound=Callable[..., Any])
_TIMEOUT_SECONDS = 60.0
"""a placement of 100,000 publishers and its write take seconds"""
_HEALTH_SECONDS = 3.0
LEADS = "leads"
STANDS_BY = "stands by"
_USAGE = (400, 404, 409)
"""refusals that a person mends; nothing was changed"""


class Remote:
    """One distributor."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._address = endpoint.address
        self._said_age = False
        self._silent: dict[str, str] = {}  # why, of those that did not answer just now

    def call(
        self,
        method: str,
        *path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> Any:
        """The answer of /v1/path. Raises UsageError for what the distributor refuses,
        UnavailableError where it is not there or does not lead."""
        answer = self._answer(method, path, body, query, timeout_seconds)
        return self._document(answer)

    def look(self, *path: str) -> Any:
        """What is at /v1/path, to be shown to somebody. Where nobody leads, it is what one that
        stands by has read, and standard error says how old that is. Raises as `call` does."""
        answer = self._answer("GET", path, None, None, _TIMEOUT_SECONDS)
        if not answer.stands_by:
            return self._document(answer)
        found = self.call("GET", *path, query={"stale": "yes"})
        age = found.pop("age_seconds", None)
        if age is not None and not self._said_age:
            self._said_age = True
            click.echo(f"as the store was {age:.0f} s ago: {answer.error}", err=True)
        return found

    def find(self, *path: str, timeout_seconds: float = _TIMEOUT_SECONDS) -> Any:
        """What is at /v1/path; None where there is nothing. Raises as `call` does."""
        answer = self._answer("GET", path, None, None, timeout_seconds)
        return None if answer.status == 404 else self._document(answer)

    def _answer(
        self,
        method: str,
        path: tuple[str, ...],
        body: object,
        query: Mapping[str, str] | None,
        timeout_seconds: float,
    ) -> Answer:
        target = "/v1/" + "/".join(quote(each, safe="") for each in path)
        if query:
            target += f"?{urlencode(query)}"
        try:
            return request(
                self._found(),
                method,
                target,
                document=body,
                timeout_seconds=timeout_seconds,
            )
        except TlsFailed as error:
            raise TlsFailed(f"distributor {error}") from None
        except UnavailableError as error:
            why = str(error).removeprefix(f"{self._address}: ")
            if self._silent:
                why = "; ".join(f"{address}: {each}" for address, each in self._silent.items())
            raise UnavailableError(
                f"no distributor answers at {self._address} ({why}); start one with srtm "
                "distributor, or name it with --distributor-address"
            ) from None

    def states(self) -> dict[str, str]:
        """Address -> LEADS, STANDS_BY, or why nothing is known of it."""
        found = {}
        for _ in range(self._endpoint.count):
            at = self._endpoint.now()
            found[at.address] = _state(at)
            self._endpoint.turn(at)
        return found

    def _found(self) -> Endpoint:
        """The one that leads, of several, or else one that stands by: a frozen one would be waited
        for."""
        self._silent.clear()
        if self._endpoint.count == 1:
            return self._endpoint
        standby = None
        for _ in range(self._endpoint.count):
            at = self._endpoint.now()
            state = _state(at)
            if state == LEADS:
                return self._endpoint  # which begins with it
            if state == STANDS_BY:
                standby = standby or at
            else:
                self._silent[at.address] = state
            self._endpoint.turn(at)
        return standby or self._endpoint

    def _document(self, answer: Answer) -> Any:
        document = answer.document
        if answer.status == 200 and isinstance(document, dict):
            return document
        if not isinstance(document, dict) or "error" not in document:
            raise UnavailableError(f"{self._address} is no distributor (HTTP {answer.status})")
        if answer.status in _USAGE:
            raise UsageError(answer.error)
        if answer.status == 401:
            raise UsageError(f"{self._address}: wrong or no token: give --distributor-token-file")
        if answer.status == 403:
            raise UsageError(f"{self._address}: {answer.error}")
        if answer.status == 405:
            raise SrtmError(f"distributor {self._address} is older than this program: upgrade it")
        if answer.status == 503:
            raise UnavailableError(f"distributor {self._address}: {answer.error}")
        raise SrtmError(f"distributor {self._address}: {answer.error}")


def _state(at: Endpoint) -> str:
    """As `Remote.states`, of one."""
    try:
        health = request(at, "GET", "/v1/health", timeout_seconds=_HEALTH_SECONDS).json()
        return LEADS if health["leading"] is True else STANDS_BY
    except TypeError:
        return "is it another program?"
    except UnavailableError as error:
        return str(error).removeprefix(f"{at.address}: ").removeprefix("/v1/health ")


def remote_options(command: Command) -> Command:
    """--distributor-address, the files that it is reached with, and --json, which each command
    takes; the command gets `remote` and `as_json`."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    return _address(
        "127.0.0.1:4180", "Address of the Load Distributor, or several with commas between."
    )(command)


def remote_or_none(command: Command) -> Command:
    """--distributor-address and its files as by `remote_options`, without a default and --json, for
    commands that may do without a distributor; `remote` is None then."""
    return _address(None, "Ask this Load Distributor instead of a deployment.")(command)


def _variable(name: str) -> str:
    """SRTM_DISTRIBUTOR_TLS_CERT and so on are what `srtm distributor` itself reads."""
    prefix = "SRTM_DISTRIBUTOR" if name == "token-file" else "SRTM_CLIENT"
    return f"{prefix}_{name.upper().replace('-', '_')}"


def _address(default: str | None, text: str) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        @wraps(command)
        def connected(
            *args: Any, remote: str | None, distributor_files: ClientFiles, **given: Any
        ) -> Any:
            return command(*args, remote=_connect(remote, distributor_files), **given)

        option = click.option(
            "--distributor-address",
            "remote",
            envvar="SRTM_DISTRIBUTOR_ADDRESS",
            default=default,
            show_default=True,
            show_envvar=True,
            metavar="HOST:PORT,...",
            help=text,
        )
        files = client_files("distributor", "the distributor", variable=_variable)
        made: Any = files(option(connected))
        return made  # type: ignore[no-any-return]

    return decorate


def _connect(address: str | None, files: ClientFiles) -> Remote | None:
    """Raises UsageError."""
    if address is None:
        for flag in on_command_line("distributor"):
            raise UsageError(f"{flag} goes with --distributor-address")
        return None
    try:
        addresses_of(address)
    except UsageError as error:
        raise UsageError(f"--distributor-address: {error}") from None
    return Remote(service_at(address, files, "--distributor-token-file"))


def print_json(document: object) -> None:
    click.echo(json.dumps(document, indent=2))
