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
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    found: str = request.getfixturevalue("server").database()
    return found
