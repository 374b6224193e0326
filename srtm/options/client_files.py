"""Flags of the files with which a command reaches a server: a token, and those of TLS."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from srtm.host.certificates import PLAIN_TEXT
from srtm.http.service import ClientFiles
from srtm.options.tls import check_client
from srtm.text.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])
_HELP = {
    "token-file": "File of mode 0600 with the token for {}.",
    "tls-root-ca-file": "File of PEM with the authority of the certificate of {}; TLS needs it.",
    "tls-cert": "File of PEM with the own certificate at {}.",
    "tls-key": "File of PEM with the key of --{}.",
}


def client_files(
    server: str,
    whom: str,
    *,
    with_token: bool = True,
    variable: Callable[[str], str] | None = None,
) -> Callable[[Command], Command]:
    """--SERVER-token-file, --SERVER-tls-root-ca-file, --SERVER-tls-cert and --SERVER-tls-key; the
    command gets them as `SERVER_files`.

    whom:     the server in the helps
    variable: what a name, such as tls-cert, is called in the environment
    """
    names = [name for name in _HELP if with_token or name != "token-file"]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def reached(*args: Any, **given: Any) -> Any:
            values = [given.pop(_parameter(server, name)) for name in names]
            files = ClientFiles(*values if with_token else ("", *values))
            try:
                check_client(server, files.root_ca, files.cert, files.key)
            except ValueError as error:
                raise UsageError(str(error)) from None
            return command(*args, **{f"{server}_files": files}, **given)

        made: Any = reached
        for name in reversed(names):
            made = click.option(
                f"--{server}-{name}",
                envvar=variable and variable(name),
                show_envvar=variable is not None,
                type=click.Path(),
                default="",
                help=_help(name, server, whom, with_token),
            )(made)
        return made  # type: ignore[no-any-return]

    return decorate


def _help(name: str, server: str, whom: str, with_token: bool) -> str:
    said = _HELP[name].format(f"{server}-tls-cert" if name == "tls-key" else whom)
    if with_token and name == "tls-root-ca-file":
        said += f" {PLAIN_TEXT}: show the token to other hosts without TLS."
    return said


def on_command_line(server: str) -> list[str]:
    """The flags of `client_files` that this call gives, and no variable."""
    context = click.get_current_context()
    source = click.core.ParameterSource.COMMANDLINE
    return [
        f"--{server}-{name}"
        for name in _HELP
        if context.get_parameter_source(_parameter(server, name)) is source
    ]


def _parameter(server: str, name: str) -> str:
    return f"{server}_{name.replace('-', '_')}"
