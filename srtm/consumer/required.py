"""Extras that the core does without."""

import importlib.util
from pathlib import Path

from srtm.consumer.file import GroupFile
from srtm.consumer.share_file import ShareFile
from srtm.text.errors import UnavailableError


def require_client(file: GroupFile | ShareFile, path: Path) -> None:
    """Kafka's client is there, and takes the settings of the file. Raises UnavailableError,
    UsageError."""
    _require("confluent_kafka", "Kafka's client", "srtm[kafka]")
    from srtm.consumer.log import WORDS
    from srtm.kafka.client import refuse_settings

    if not isinstance(file, ShareFile):
        refuse_settings(file.kafka, str(path), WORDS)
        return
    _require_share_consumer(path)
    from confluent_kafka import ShareConsumer

    refuse_settings(file.kafka, str(path), {}, ShareConsumer)


def _require_share_consumer(path: Path) -> None:
    import confluent_kafka

    if not hasattr(confluent_kafka, "ShareConsumer"):
        raise UnavailableError(
            f'{path}: group-type = "share" takes confluent-kafka 2.16 or newer, and '
            f"{confluent_kafka.__version__} is installed: pip install 'srtm[kafka]'"
        )
    _require("kafka", "kafka-python, which asks for the group's lag,", "srtm[kafka]")


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
