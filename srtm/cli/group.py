"""A group of commands, of which some may be imported when they are called."""

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click

_WHOLE = 1000
"""characters: of a sentence that is not cut"""


class LazyGroup(click.Group):
    """imported: by a command's name, where it is (`module:attribute`)."""

    def __init__(self, *args: Any, imported: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._imported = imported or {}

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each command is for, whole: click's own cuts it."""
        commands = ((name, self.get_command(context, name)) for name in self.list_commands(context))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(_WHOLE)) for name, each in commands if each]
            )

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
                said = error.message.rstrip(".")
                raise click.UsageError(f"{said} (did you mean {near[0]!r}?)", context) from None
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
