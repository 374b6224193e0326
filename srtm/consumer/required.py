"""Extras that the core does without."""

import importlib.util

from srtm.errors import UnavailableError


def require_client() -> None:
    """Raises UnavailableError."""
    _require("confluent_kafka", "Kafka's client", "srtm[kafka]")


def require_parquet() -> None:
    """Raises UnavailableError."""
    _require("pyarrow", "pyarrow, which writes Parquet,", "srtm[parquet]")


def _require(module: str, what: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise UnavailableError(f"{what} is not installed: pip install '{extra}'")
