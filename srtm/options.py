"""One options class per program: it gives the flags, the file's keys, the environment and the help.

A pydantic model's field `tcp_address` is the flag `--tcp-address`, the key `tcp-address` of the
TOML file and the variable PREFIX_TCP_ADDRESS. A flag wins over the environment, that over the file,
that over the default.
"""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_origin

import click
from click.core import ParameterSource
from pydantic import BaseModel, ConfigDict, ValidationError

from srtm.duration import format_duration, parse_duration
from srtm.errors import UsageError, one_line

Model = TypeVar("Model", bound=BaseModel)
Command = TypeVar("Command", bound=Callable[..., Any])


class FileTable(BaseModel):
    """A table of a TOML file: `drain_timeout` is the key `drain-timeout`, others are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        alias_generator=lambda name: name.replace("_", "-"),
        arbitrary_types_allowed=True,
    )


def add_options(model: type[BaseModel]) -> Callable[[Command], Command]:
    """A decorator: one click option for each field of `model`, and --config."""

    def decorate(command: Command) -> Command:
        command = click.option(
            "--config", "config", type=click.Path(dir_okay=False), help="TOML file of these flags"
        )(command)
        for name, field in reversed(model.model_fields.items()):
            flag = "--" + name.replace("_", "-")
            many = get_origin(field.annotation) is tuple
            command = click.option(
                flag,
                name,
                is_flag=field.annotation is bool,
                multiple=many,
                default=None if not many else (),
                help=_help(field.description or "", field.default, many),
                metavar=None if field.annotation is bool else _metavar(field.annotation),
            )(command)
        return command

    return decorate


def read_options(model: type[Model], context: click.Context) -> Model:
    """The options of this call. Raises UsageError that names the flag or the file's key."""
    path = context.params.get("config")
    values = _read_file(Path(path), model) if path else {}
    in_file = set(values)
    where = f"--config {path}" if path else "options"
    for name in model.model_fields:
        if context.get_parameter_source(name) not in (ParameterSource.DEFAULT, None):
            values[name] = context.params[name]
            in_file.discard(name)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        fault = error.errors()[0]["loc"]
        name = str(fault[0]) if fault else ""
        if name not in model.model_fields:
            raise one_line(error, where) from None
        key = name.replace("_", "-")
        missing = [each["loc"][0] for each in error.errors() if each["type"] == "missing"]
        flags = ", ".join("--" + str(each).replace("_", "-") for each in missing)
        at = f"{path}: {key}" if name in in_file else flags if name in missing else f"--{key}"
        raise one_line(error, at, 1) from None


def parsed(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """The callback of a flag that a parser of ours reads: its ValueError becomes a UsageError that
    names the flag."""

    def read(_: click.Context, param: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise UsageError(f"{param.opts[0]}: {error}") from None

    return read


def read_toml(path: Path) -> dict[str, Any]:
    """Raises UsageError with the file, the line and what is wrong there."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from None


def _read_file(path: Path, model: type[BaseModel]) -> dict[str, Any]:
    values = {}
    for key, value in read_toml(path).items():
        name = key.replace("-", "_")
        if name not in model.model_fields:
            known = ", ".join(field.replace("_", "-") for field in model.model_fields)
            raise UsageError(f"{path}: unknown key {key!r}; known are {known}")
        values[name] = value
    return values


def _metavar(annotation: Any) -> str:
    return {int: "NUMBER", float: "DURATION"}.get(annotation, "VALUE")


def _help(text: str, default: Any, many: bool) -> str:
    if many:
        return f"{text} (may be given several times)"
    if (
        default is None
        or default == ""
        or isinstance(default, bool)
        or repr(default) == "PydanticUndefined"
    ):
        return text
    return (
        f"{text} [default: {format_duration(default) if isinstance(default, float) else default}]"
    )


def duration_option(flag: str, default: str, text: str) -> Callable[..., Any]:
    """A flag with a Go-style duration, in seconds for the command."""
    return click.option(
        flag,
        metavar="DURATION",
        callback=parsed(parse_duration),
        default=default,
        show_default=True,
        help=text,
    )
