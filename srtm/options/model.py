"""One options class per program: it gives the flags, the file's keys, the environment and the help.

A pydantic model's field `tcp_address` is the flag `--tcp-address`, the key `tcp-address` of the
TOML file and the variable PREFIX_TCP_ADDRESS. A flag wins over the environment, that over the file,
that over the default.
"""

import tomllib
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import click
from click.core import ParameterSource
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo

from srtm.host.files import MOST_SETTINGS_BYTES, check_toml, check_toml_values, read_file
from srtm.limits.ceiling import Ceiling
from srtm.limits.slo import SLO
from srtm.options.known_keys import refuse_unknown, unknown_key
from srtm.text.duration import format_duration, parse_duration
from srtm.text.errors import UsageError, one_line
from srtm.text.fields import CHECK, YES_NO

Model = TypeVar("Model", bound=BaseModel)
Command = TypeVar("Command", bound=Callable[..., Any])


Objective = Annotated[
    SLO, BeforeValidator(lambda value: SLO.parse(value) if isinstance(value, str) else value)
]
"""A field with an SLO; the text of a flag or a file is `0.99@1ms`."""


def _ceiling(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return Ceiling.parse(value, "contract")
    except UsageError as error:
        raise ValueError(str(error).removeprefix("contract: ")) from None


Bound = Annotated[Ceiling, BeforeValidator(_ceiling)]
"""A field with what a contract lets come; the text of a flag or a file is `rate=1000,burst=200`."""


def environment(name: str) -> dict[str, Any]:
    """The `json_schema_extra` of a field with a variable that several programs share, in place of
    the field's own."""
    return {"environment": name}


class FileTable(BaseModel):
    """A table of a TOML file: `drain_timeout` is the key `drain-timeout`, others are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        alias_generator=lambda name: name.replace("_", "-"),
        arbitrary_types_allowed=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: object) -> object:
        keys = (field.alias or name for name, field in cls.model_fields.items())
        return refuse_unknown(values, keys, also=cls.model_fields)


def add_options(model: type[BaseModel]) -> Callable[[Command], Command]:
    """A decorator: one click option for each field of `model`, and --config."""

    def decorate(command: Command) -> Command:
        command = click.option(
            "--config", "config", type=click.Path(dir_okay=False), help="TOML file of these flags"
        )(command)
        for name, field in reversed(model.model_fields.items()):
            whole = any(isinstance(each, BeforeValidator) for each in field.metadata)
            many = get_origin(field.annotation) is tuple and not whole  # a list in one text
            is_switch = field.annotation is bool
            # `--snappy` alone is `--snappy=true`, as Go's flags are.
            alone: dict[str, Any] = {"flag_value": "true"} if YES_NO in field.metadata else {}
            command = click.option(
                "--" + name.replace("_", "-"),
                name,
                is_flag=is_switch,
                **alone,
                multiple=many,
                default=() if many else None,
                envvar=_shared_variable(field),
                help=_help(field, many),
                metavar=None if is_switch else _metavar(field),
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


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """The command line that `read_options` reads these from. values: a model's, as JSON."""
    flags = []
    for name, value in values.items():
        flag = "--" + name.replace("_", "-")
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):  # a contract's pairs
                each = ",".join(f"{key}={pair}" for key, pair in each.items())
            if each is not False:
                flags.append(flag if each is True else f"{flag}={each}")
    return flags


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
    data = b""
    try:
        data = read_file(path, MOST_SETTINGS_BYTES)
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        check_toml(text)
        found = tomllib.loads(text)
        check_toml_values(found)
        return found
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}: not TOML: not UTF-8 text (at line {line})") from None
    except ValueError as error:
        end = max(len(data.splitlines()), 1)
        said = str(error).replace("(at end of document)", f"(at line {end}, its end)")
        if said.startswith("Exceeds the limit"):  # of Python, which says no line
            said = "an integer has thousands of digits"
        quotes = said.startswith(("Invalid value", "Expected newline"))
        hint = "; strings and durations need quotes" if quotes else ""
        raise UsageError(f"{path}: not TOML: {said}{hint}") from None


def _read_file(path: Path, model: type[BaseModel]) -> dict[str, Any]:
    values = {}
    for key, value in read_toml(path).items():
        name = key.replace("-", "_")
        if name not in model.model_fields:
            known = [field.replace("_", "-") for field in model.model_fields]
            raise UsageError(f"{path}: {unknown_key(key, known)}")
        values[name] = value
    return values


_METAVARS = {int: "NUMBER", float: "NUMBER", Path: "PATH", SLO: "P@DURATION"}


def _metavar(field: FieldInfo) -> str:
    if _is_duration(field):
        return "DURATION"
    if get_origin(field.annotation) is Literal:
        return "|".join(get_args(field.annotation))
    kinds = [_bare(each) for each in get_args(field.annotation) if each is not NoneType]
    kind = kinds[0] if len(kinds) == 1 else field.annotation
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return "|".join(kind)
    return _METAVARS.get(kind, "VALUE")  # type: ignore[arg-type]


def _is_duration(field: FieldInfo) -> bool:
    """Is the field a duration? One that need not be given counts too."""
    marks = [*field.metadata]
    for each in get_args(field.annotation):
        marks += getattr(each, "__metadata__", ())
    return CHECK in marks


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _shared_variable(field: FieldInfo) -> str | None:
    extra = field.json_schema_extra
    return str(extra["environment"]) if isinstance(extra, dict) and "environment" in extra else None


def _help(field: FieldInfo, many: bool) -> str:
    text = field.description or ""
    if many:
        return f"{text} (may be given several times)"
    variable = _shared_variable(field)
    if variable:
        text = f"{text} [variable: {variable}]"
    default = field.default
    if field.is_required() or default is None or default == "" or isinstance(default, bool):
        return text
    if field.default_factory is not None:
        return text
    if isinstance(default, float):
        default = format_duration(default) if _is_duration(field) else f"{default:g}"
    if type(default) is tuple:  # not an address, which is one too
        default = ",".join(f"{each:g}" for each in default)
    return f"{text} [default: {default}]"


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
