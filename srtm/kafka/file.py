"""`[kafka]` of a program's TOML file."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, field_validator

from srtm.options.model import FileTable

_KEYS = {
    "bootstrap.servers": "it is bootstrap-servers of [kafka]",
    "metadata.broker.list": "it is bootstrap-servers of [kafka]",
}
"""librdkafka's settings that are keys of `[kafka]`: name -> which"""


class KafkaTable(FileTable):
    """`[kafka]`, with librdkafka's own settings in `[kafka.settings]`.

    own_settings: librdkafka's settings that a file may not set, beside those that are keys here:
                  name -> why
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
        refused = {**_KEYS, **cls.own_settings}
        for name in settings:
            if name in refused:
                raise ValueError(f"{name} cannot be set: {refused[name]}")
        return settings
