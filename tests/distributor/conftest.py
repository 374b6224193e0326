"""What tests of a distributor that is killed, or has flags of its own, start it with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.distributors import Starter, distributors_in


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with distributors_in(tmp_path) as starter:
        yield starter
