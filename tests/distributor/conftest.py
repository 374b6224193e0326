"""Stores of both kinds, for tests of what becomes of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import Postgres, postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return _new(request, tmp_path / "store.db")


@pytest.fixture(params=["sqlite", "postgresql"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Another one than `store`."""
    return _new(request, tmp_path / "other.db")


def _new(request: pytest.FixtureRequest, path: Path) -> str:
    """A store that is not there yet, of the kind that the fixture's parameter names."""
    if request.param == "sqlite":
        return str(path)
    found: str = request.getfixturevalue("server").database()
    return found
