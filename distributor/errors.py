"""Why the distributor refuses: one table of kinds and their HTTP statuses."""

from http import HTTPStatus

from distributor.store.errors import StoreError
from srtm.text.errors import SrtmError, UnavailableError, UsageError


class NotFound(SrtmError):
    """There is no such broker, topic or publisher."""


class Conflict(SrtmError):
    """The request is right, and the state of things does not allow it."""


class NotLeading(UnavailableError):
    """Another distributor leads, or this one cannot be sure that it does."""


class TooMany(UnavailableError):
    """A bound on memory is reached; another time or another distributor may do."""


class TooLong(SrtmError):
    """The body of a request is longer than it may be."""


class Forbidden(SrtmError):
    """The caller is known, and may not do this."""


STATUSES: tuple[tuple[type[Exception], HTTPStatus], ...] = (
    (UsageError, HTTPStatus.BAD_REQUEST),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (NotFound, HTTPStatus.NOT_FOUND),
    (Conflict, HTTPStatus.CONFLICT),
    (TooLong, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (StoreError, HTTPStatus.SERVICE_UNAVAILABLE),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
)
"""The first that fits; anything else is a fault of the program: 500."""


def status_of(error: Exception) -> HTTPStatus:
    for kind, status in STATUSES:
        if isinstance(error, kind):
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR
