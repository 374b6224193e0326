from typing import Any

import pytest


@pytest.fixture
def figure() -> Any:
    """An empty one to draw on. matplotlib takes 0.7 s of CPU to import, in each worker."""
    from matplotlib.figure import Figure

    return Figure()
