"""Durations and addresses as fields of pydantic models."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, PlainSerializer

from srtm.text.address import Address, addresses_of
from srtm.text.duration import MAX_SECONDS, format_duration, parse_duration
from srtm.text.errors import UsageError


def _duration_or_seconds(value: object) -> float:
    """Files and flags write durations as text; values inside the program are seconds already."""
    if not isinstance(value, float):
        return parse_duration(value)
    if not 0 <= value <= MAX_SECONDS:
        raise ValueError(f"{value} s is no duration: it must be between 0 and ten years")
    return value


CHECK = BeforeValidator(_duration_or_seconds)
"""by which a field of this kind is known"""

Duration = Annotated[
    float,
    CHECK,
    PlainSerializer(format_duration, return_type=str, when_used="json"),
]
"""A pydantic field in seconds that is written as a Go-style duration."""

ListenAddress = Annotated[
    Address,
    BeforeValidator(lambda v: v if isinstance(v, Address) else Address.parse(v)),
    PlainSerializer(str, return_type=str),
]
"""A pydantic field that is written as `host:port`."""


def _addresses(value: object) -> object:
    """The addresses of one service as one text; what is empty or neither text nor a list is
    left."""
    if isinstance(value, Address):
        return str(value)
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    if not isinstance(value, str) or not value:
        return value
    try:
        return ",".join(map(str, addresses_of(value)))
    except UsageError as error:
        raise ValueError(str(error)) from None


ServerAddresses = Annotated[str, BeforeValidator(_addresses)]
"""A pydantic field that is written as `host:port`, as several of them with commas between, or as a
list: where one service is."""

YES_NO = BeforeValidator(lambda v: str(v).lower() if isinstance(v, bool) else v)
"""Lets a file write true and false without quotes where a flag takes them as words. The flag alone
is `true`, as with Go's flags."""

YesNo = Annotated[Literal["true", "false"], YES_NO]
"""A pydantic field that is on until it is switched off: `--snappy=false`, as Go's flags are."""
