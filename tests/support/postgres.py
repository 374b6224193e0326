"""A real PostgreSQL for tests, ended with them."""

import contextlib
from collections.abc import Iterator

import pytest

from benchmarks.harness import postgres as real
from benchmarks.harness.postgres import Postgres
from srtm.text.errors import UnavailableError
from tests.support.servers import STARTED, free_port

__all__ = ["Postgres", "postgres"]


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """A server that syncs nothing to disk. The test is skipped where none is installed."""
    try:
        real.programs()
    except UnavailableError as error:
        pytest.skip(str(error))
    with real.postgres(free_port(), "-c", "fsync=off", started=STARTED.append) as running:
        yield running
