"""Extras that the core does without."""

import importlib.util

from srtm.errors import UnavailableError


def require_client() -> None:
    """Raises UnavailableError."""
    _require("confluent_kafka", "Kafka's client", "srtm[kafka]")


def require_parquet() -> None:
    """Raises UnavailableError."""
    _require("pyarrow", "pyarrow, which writes Parquet,", "srtm[parquet]")


def require_kubernetes() -> None:
    """Raises UnavailableError."""
    _require("kubernetes", "the client of Kubernetes", "srtm[kubernetes]")


def require_grpc() -> None:
    """Raises UnavailableError."""
    for module in ("grpc", "google.protobuf"):
        _require(module, "gRPC, which KEDA speaks,", "srtm[keda]")


def _require(module: str, what: str, extra: str) -> None:
    if not _is_there(module):
        raise UnavailableError(f"{what} is not installed: pip install '{extra}'")


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that is not there itself
        return False
