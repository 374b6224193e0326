"""What a user can do wrong, in one line each, and the exit codes of every program."""

import re
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a twentieth of a second to import
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


class Exit(IntEnum):
    """Exit codes; shells and supervisors rely on them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 3


EXITS = {
    Exit.OK: "done",
    Exit.FAILED: "the command ran and failed: a broker went away, a benchmark missed its bar",
    Exit.USAGE: "the command line or a file is wrong; nothing was started",
    Exit.UNAVAILABLE: "something that is needed is not there: nsqd, a port, a broker",
}
"""what they mean"""

PLOTS = (
    "pip install matplotlib, or the wheel's file with the extra: pip install './FILE.whl[plots]'"
)
"""as the package is in no registry"""


class SrtmError(Exception):
    """An error that a person can act on: one line that says what, where and how to mend it."""

    exit_code = Exit.FAILED


class UsageError(SrtmError):
    """Bad input: a flag, a file, a value."""

    exit_code = Exit.USAGE


class UnavailableError(SrtmError):
    """Something outside is missing or does not answer."""

    exit_code = Exit.UNAVAILABLE


def reason_of(error: BaseException) -> str:
    """An error's kind and text; the kind alone of one whose text cannot be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, whose text cannot be had"


def one_line(error: "ValidationError", where: str, named: int = 0) -> UsageError:
    """The first fault that pydantic found, as one line: where, which field, what, the value. Of
    fields that are missing all are named.
    `named` parts of the field's path stand in `where` already."""
    faults = error.errors(include_url=False, include_context=False)
    fault = faults[0]
    same = [each for each in faults if each["type"] == fault["type"] == "missing"]
    fields = _fields(same or [fault], named)
    shown = _some(fields)
    message = _plain(fault["msg"])
    unquoted = ("missing", "value_error", "json_invalid")  # the last one would quote the whole text
    given = "" if fault["type"] in unquoted else f" (got {fault['input']!r})"
    others = [each for each in faults if not _of_one_value(fault, each)]
    also = [path for path in _fields(others, named) if path not in fields]
    more = f"; also wrong: {_some(also)}" if also else ""
    return UsageError(f"{where}: {shown + ': ' if shown else ''}{message}{given}{more}")


def _of_one_value(one: "ErrorDetails", other: "ErrorDetails") -> bool:
    """Are both about one value, which may be of one kind or of another? Pydantic ends their paths
    with the kinds."""
    kinds = (str(each["loc"][-1]) if each["loc"] else "" for each in (one, other))
    return one["loc"][:-1] == other["loc"][:-1] and all(map(_KIND.match, kinds))


def _fields(faults: "list[ErrorDetails]", named: int) -> list[str]:
    """The paths of the fields that have a fault, each once."""
    paths = (".".join(str(part) for part in fault["loc"][named:]) for fault in faults)
    return list(dict.fromkeys(path for path in paths if path))


def _some(fields: list[str]) -> str:
    more = f" and {len(fields) - _SHOWN} more" if len(fields) > _SHOWN else ""
    return ", ".join(fields[:_SHOWN]) + more


_KIND = re.compile(r"(int|str|float|bool|none)$|[A-Z]|[a-z-]+\[")
"""the end of a path that names a kind and no field"""
_SHOWN = 5
"""fields that one line names"""
_PLAIN = {
    r"^Value error, ": "",
    r"^Field required$": "needed",
    r"^(Input|String|Value|List|Tuple) should ": "must ",
    r", unable to .*": "",
    r"\ba valid integer\b.*": "a whole number",
    r"\ba valid dictionary\b.*": "a table",
    r"\ba valid (tuple|list)\b": "a list",
    r"\ba valid string\b": "text",
    r"\ba valid ": "a ",
}
"""pydantic's words, and ours"""


def _plain(message: str) -> str:
    for theirs, ours in _PLAIN.items():
        message = re.sub(theirs, ours, message)
    return message
