"""A group of commands, of which some are imported when they are called."""

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """imported: by a command's name, where it is (`module:attribute`)."""

    def __init__(self, *args: Any, imported: Mapping[str, str], **more: Any) -> None:
        super().__init__(*args, **more)
        self._imported = imported

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*super().list_commands(context), *self._imported})

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.list_commands(context), n=1)
            if near:
                raise click.UsageError(
                    f"{error.message} Did you mean {near[0]!r}?", context
                ) from None
            raise

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in self._imported:
            return command_at(self._imported[name])
        return super().get_command(context, name)


def command_at(place: str) -> click.Command:
    """The command at `module:attribute`."""
    module, _, attribute = place.partition(":")
    command: click.Command = getattr(importlib.import_module(module), attribute)
    return command
