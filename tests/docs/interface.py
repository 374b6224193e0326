"""What people write: commands, options, keys of files, routes of the distributor, metrics."""

from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import click
from pydantic import BaseModel

from distributor.http.routes import ROUTES
from srtm.bridge.file import BridgeFile
from srtm.cli.main import cli
from srtm.consumer.file import GroupFile
from srtm.consumer.pool_file import PoolFile
from srtm.deploy import host_tables, nsqadmin, tables
from tests.docs.generated import PROGRAMS, metrics_of

LISTED = Path(__file__).with_name("interface.txt")
_FILES = {"group": GroupFile, "pool": PoolFile, "bridge": BridgeFile}


def interface() -> list[str]:
    """A line for each, sorted."""
    modules = (tables, host_tables, nsqadmin)
    deployed = [each for module in modules for each in vars(module).values()]
    models = {
        f"deployment {each.__name__}": each
        for each in deployed
        if isinstance(each, type) and issubclass(each, BaseModel) and each.model_fields
    }
    keys = [line for name, model in (_FILES | models).items() for line in _keys(name, model)]
    routes = [f"{row.method} {row.path}" for row in ROUTES]
    metrics = [f"metric {row.name}" for each in PROGRAMS.values() for row in metrics_of(each)]
    return sorted({*_options("srtm", cli), *keys, *routes, *metrics})


def _options(path: str, command: click.Command) -> Iterator[str]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _options(f"{path} {name}", inner)
    for parameter in command.params:
        names = parameter.opts + parameter.secondary_opts
        yield from (f"{path} {name}" for name in names)


def _keys(path: str, model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{path} {field.alias or name.replace('_', '-')}"
        yield key
        for inner in _models(field.annotation):
            yield from _keys(key, inner)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, UnionType, tuple, list, dict):
        for each in get_args(annotation):
            yield from _models(each)


if __name__ == "__main__":
    LISTED.write_text("\n".join(interface()) + "\n")
