"""What a user can do wrong, in one line each, and the exit codes of every program."""

from enum import IntEnum

from pydantic import ValidationError


class Exit(IntEnum):
    """Exit codes; shells and supervisors rely on them."""

    OK = 0
    FAILED = 1  # it was tried, and it failed: a server went away, a bar was missed
    USAGE = 2  # the command line or a file is wrong; nothing was started
    UNAVAILABLE = 3  # something that is needed is not there: nsqd, a port, a broker


class SrtmError(Exception):
    """An error that a person can act on: one line that says what, where and how to mend it."""

    exit_code = Exit.FAILED


class UsageError(SrtmError):
    """Bad input: a flag, a file, a value."""

    exit_code = Exit.USAGE


class UnavailableError(SrtmError):
    """Something outside is missing or does not answer."""

    exit_code = Exit.UNAVAILABLE


def one_line(error: ValidationError, where: str, named: int = 0) -> UsageError:
    """The first fault that pydantic found, as one line: where, which field, what, the value.
    `named` parts of the field's path stand in `where` already."""
    fault = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in fault["loc"][named:])
    message = fault["msg"].removeprefix("Value error, ")
    unquoted = ("missing", "value_error", "json_invalid")  # the last one would quote the whole text
    given = "" if fault["type"] in unquoted else f" (got {fault['input']!r})"
    more = f"; {error.error_count() - 1} more" if error.error_count() > 1 else ""
    return UsageError(f"{where}: {field + ': ' if field else ''}{message}{given}{more}")
