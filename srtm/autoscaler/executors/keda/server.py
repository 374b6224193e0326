"""The gRPC door that KEDA asks at."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol

import grpc

from srtm.autoscaler.executors.keda.messages import CLASSES, SERVICE
from srtm.consumer.file import ExecutorTable
from srtm.host.files import MOST_SETTINGS_BYTES, read_file
from srtm.text.address import Address
from srtm.text.errors import UnavailableError, UsageError

METRIC: Final = "srtm-consumers"
_WORKERS = 16
_STREAMS = 4
"""The most streams at a time: each stream keeps a worker, and the other workers are for
questions."""
_MOST_BYTES = 64 * 1024
"""of a question: names, and the trigger's metadata"""
_STREAM_SECONDS = 1.0
_OPTIONS = (
    ("grpc.max_receive_message_length", _MOST_BYTES),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.max_concurrent_streams", 64),
    ("grpc.so_reuseport", 0),  # or two controllers would listen, and be asked in turns
    ("grpc.keepalive_time_ms", 30_000),
)


class Wanted(Protocol):
    def replicas(self) -> int | None:
        """How many replicas are wanted; None: nobody has decided yet."""


class ScalerServer:
    def __init__(self, table: ExecutorTable, file: Path, wanted: Wanted) -> None:
        """Listens. Raises UsageError for files that are none, UnavailableError for the address."""
        self._wanted = wanted
        self._over = threading.Event()
        self._streams = threading.Semaphore(_STREAMS)
        self._server = grpc.server(
            ThreadPoolExecutor(_WORKERS, "keda"),
            options=_OPTIONS,
            maximum_concurrent_rpcs=_WORKERS,
        )
        handlers = {
            "IsActive": _one(self._is_active, "ScaledObjectRef", "IsActiveResponse"),
            "StreamIsActive": _many(self._stream, "ScaledObjectRef", "IsActiveResponse"),
            "GetMetricSpec": _one(self._spec, "ScaledObjectRef", "GetMetricSpecResponse"),
            "GetMetrics": _one(self._metrics, "GetMetricsRequest", "GetMetricsResponse"),
        }  # StreamMetricSpec is optional: KEDA goes on where it is UNIMPLEMENTED
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        address = table.grpc_address
        self.port = self._listen(table, file, str(Address(address.host or "::", address.port)))
        self._server.start()

    def _listen(self, table: ExecutorTable, file: Path, address: str) -> int:
        where = f"{file}: [executor]: grpc-address {address}"
        try:
            if table.tls_cert:
                found = self._server.add_secure_port(address, _credentials(table, file))
            else:
                found = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise UnavailableError(f"{where} cannot be listened on: {error}") from None
        if not found:
            raise UnavailableError(f"{where} cannot be listened on; choose another port")
        return int(found)

    def close(self) -> None:
        self._over.set()
        self._server.stop(1.0).wait(2.0)

    # --- what is asked ----------------------------------------------------------------------------

    def _is_active(self, request: Any, context: Any) -> Any:
        return CLASSES["IsActiveResponse"](result=bool(self._replicas(context)))

    def _stream(self, request: Any, context: Any) -> Iterator[Any]:
        """Tell whether any replicas are wanted, at once and where that changes."""
        if not self._streams.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_STREAMS} streams is the most")
        try:
            told: bool | None = None
            while not self._over.is_set() and context.is_active():
                active = bool(self._wanted.replicas())
                if active != told:
                    told = active
                    yield CLASSES["IsActiveResponse"](result=active)
                self._over.wait(_STREAM_SECONDS)
        finally:
            self._streams.release()

    def _spec(self, request: Any, context: Any) -> Any:
        """One for each replica, so an average of it asks for as many as the metric says."""
        spec = CLASSES["MetricSpec"](metricName=METRIC, targetSize=1, targetSizeFloat=1.0)
        return CLASSES["GetMetricSpecResponse"](metricSpecs=[spec])

    def _metrics(self, request: Any, context: Any) -> Any:
        count = self._replicas(context)
        value = CLASSES["MetricValue"](
            metricName=METRIC, metricValue=count, metricValueFloat=float(count)
        )
        return CLASSES["GetMetricsResponse"](metricValues=[value])

    def _replicas(self, context: Any) -> int:
        count = self._wanted.replicas()
        if count is None:  # the HPA keeps what there is
            context.abort(grpc.StatusCode.UNAVAILABLE, "nobody has decided yet")
        assert count is not None
        return count


def _one(answer: Callable[[Any, Any], Any], request: str, response: str) -> Any:
    return grpc.unary_unary_rpc_method_handler(answer, *_codec(request, response))


def _many(answer: Callable[[Any, Any], Any], request: str, response: str) -> Any:
    return grpc.unary_stream_rpc_method_handler(answer, *_codec(request, response))


def _codec(request: str, response: str) -> tuple[Any, Any]:
    return CLASSES[request].FromString, CLASSES[response].SerializeToString


def _credentials(table: ExecutorTable, file: Path) -> Any:
    cert = _pem(file, "tls-cert", table.tls_cert)
    key = _pem(file, "tls-key", table.tls_key)
    ca = _pem(file, "client-ca", table.client_ca) if table.client_ca else None
    return grpc.ssl_server_credentials(
        [(key, cert)], root_certificates=ca, require_client_auth=ca is not None
    )


def _pem(file: Path, name: str, path: str) -> bytes:
    try:
        found = read_file(file.parent / path, MOST_SETTINGS_BYTES)
    except OSError as error:
        raise UsageError(f"{file}: [executor]: {name} {path}: {error.strerror}") from None
    if b"-----BEGIN" not in found:
        raise UsageError(f"{file}: [executor]: {name} {path}: no PEM")
    return found
