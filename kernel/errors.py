"""Why a timestamp source cannot be used here."""

from srtm.text.errors import UnavailableError


class SourceUnavailable(UnavailableError):
    """A timestamp source that does not work here: one line, what is missing and how to mend it."""
