"""`[kafka]` of a program's TOML file."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, field_validator

from srtm.options.model import FileTable


class KafkaTable(FileTable):
    """`[kafka]` and `[kafka.settings]`, which are librdkafka's.

    own_settings: those that the program makes itself: name -> why
    """

    own_settings: ClassVar[Mapping[str, str]] = {}

    bootstrap_servers: str = Field(min_length=1)
    settings: dict[str, str | int | float | bool] = Field(default_factory=dict)

    @field_validator("settings", mode="before")
    @classmethod
    def _names_in_quotes(cls, settings: object) -> object:
        for name, value in settings.items() if isinstance(settings, dict) else ():
            if isinstance(value, dict):
                whole = f"{name}.{next(iter(value), '')}"
                raise ValueError(f'write "{whole}" in quotes: without them its dot makes a table')
        return settings

    @field_validator("settings")
    @classmethod
    def _not_our_own(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for name in settings:
            if name in cls.own_settings:
                raise ValueError(f"{name} cannot be set: {cls.own_settings[name]}")
        return settings
