"""How the shares of a topic follow its traffic, as commands set and show it."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from distributor.remote import Remote

Command = TypeVar("Command", bound=Callable[..., Any])
ADAPTATION_KEYS = ("policy", "window", "every")


def adaptation_options(command: Command) -> Command:
    """--adapt, --adapt-window and --adapt-every; the command gets `policy`, `window`, `every`."""
    for flag, name, shape, text in (
        (
            "--adapt-every",
            "every",
            "DURATION",
            "How often the policy is asked; srtm reacts at once.",
        ),
        (
            "--adapt-window",
            "window",
            "DURATION",
            "How far back the policy looks at the traffic.",
        ),
    ):
        command = click.option(flag, name, metavar=shape, help=text)(command)
    return click.option(
        "--adapt",
        "policy",
        type=click.Choice(["srtm", "paper", "rate-only", "off"]),
        help="How the shares of a topic that the distributor holds follow its traffic.",
    )(command)


def set_adaptation(remote: Remote, topic: str, changes: Mapping[str, str]) -> dict[str, Any]:
    """What is not given stays as it is. Raises UsageError."""
    before = remote.call("GET", "topics", topic, "adaptation")
    asked = {key: before[key] for key in ADAPTATION_KEYS} | dict(changes)
    found: dict[str, Any] = remote.call("PUT", "topics", topic, "adaptation", body=asked)
    return found


def settings_line(found: Mapping[str, Any]) -> str:
    rests = f"; it rests: {found['resting']}" if found["resting"] else ""
    return (
        f"topic {found['topic']}: policy {found['policy']}, window {found['window']}, every "
        f"{found['every']}{rests}"
    )


def since_line(found: Mapping[str, Any]) -> str:
    """When the shares became what they are, and whether they follow the traffic."""
    since = f"since {when(found['since'])}" if found["since"] is not None else "not placed yet"
    return f"shares {since}; they follow the traffic: {found['policy']}" + (
        f" (it rests: {found['resting']})" if found["resting"] else ""
    )


def when(at: float) -> str:
    """at: seconds since 1970"""
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return f"{at:g} s after 1970"
