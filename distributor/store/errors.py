"""How a store fails, by what the service has to do then."""

from srtm.text.errors import UnavailableError


class StoreError(UnavailableError):
    """A write failed and nothing of it was kept; the store goes on. A full disk is one cause."""


class StoreLost(StoreError):
    """The store does not answer any more, or somebody else may lead: the outcome of a write is
    unknown, so what is in memory is thrown away and read again."""
