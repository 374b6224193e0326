"""KEDA's questions by a real gRPC client, with TLS and without, and hostile ones."""

import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from srtm.autoscaler.executors.executor import Wanted
from srtm.autoscaler.executors.keda import Keda
from srtm.autoscaler.executors.keda.messages import CLASSES, SERVICE
from srtm.consumer.file import ExecutorTable
from srtm.text.errors import UsageError
from tests.support.servers import free_port, program

Make = Callable[..., Keda]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as stack:

        def made(**keys: Any) -> Keda:
            address = f"127.0.0.1:{free_port()}"
            table = ExecutorTable(kind="keda", grpc_address=address, **keys)
            found = Keda(table, tmp_path / "x.toml")
            stack.callback(found.close)
            return found

        yield made


def ask(channel: grpc.Channel, method: str, request: str, response: str, **keys: Any) -> Any:
    call = channel.unary_unary(
        f"/{SERVICE}/{method}",
        request_serializer=CLASSES[request].SerializeToString,
        response_deserializer=CLASSES[response].FromString,
    )
    return call(CLASSES[request](**keys), timeout=10)


def metric(channel: grpc.Channel) -> float:
    found = ask(channel, "GetMetrics", "GetMetricsRequest", "GetMetricsResponse")
    (value,) = found.metricValues
    assert value.metricValue == value.metricValueFloat
    return float(value.metricValueFloat)


def test_what_keda_asks(make: Make) -> None:
    keda = make()
    with grpc.insecure_channel(f"127.0.0.1:{keda.server.port}") as channel:
        (spec,) = ask(
            channel, "GetMetricSpec", "ScaledObjectRef", "GetMetricSpecResponse", name="x"
        ).metricSpecs
        assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == ("srtm-consumers", 1, 1)
        with pytest.raises(grpc.RpcError) as caught:
            metric(channel)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        keda.want(0.0, Wanted(count=3, there=1))
        assert metric(channel) == 3
        assert ask(channel, "IsActive", "ScaledObjectRef", "IsActiveResponse").result
        with pytest.raises(grpc.RpcError) as caught:
            ask(channel, "StreamMetricSpec", "ScaledObjectRef", "GetMetricSpecResponse")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_stream_tells_at_once_and_when_it_changes(make: Make) -> None:
    keda = make()
    with grpc.insecure_channel(f"127.0.0.1:{keda.server.port}") as channel:
        stream = channel.unary_stream(
            f"/{SERVICE}/StreamIsActive",
            request_serializer=CLASSES["ScaledObjectRef"].SerializeToString,
            response_deserializer=CLASSES["IsActiveResponse"].FromString,
        )(CLASSES["ScaledObjectRef"](), timeout=20)
        assert not next(stream).result
        keda.want(0.0, Wanted(count=2, there=0))
        assert next(stream).result
        stream.cancel()


def test_what_it_sends_on_the_wire_is_kedas() -> None:
    """Against bytes by hand: field numbers and types are all that protobuf sends."""
    value = CLASSES["MetricValue"](metricName="m", metricValue=3, metricValueFloat=3.0)
    wire = b"\x0a\x01m\x10\x03\x19\x00\x00\x00\x00\x00\x00\x08\x40"
    assert value.SerializeToString() == wire
    answer = CLASSES["GetMetricsResponse"](metricValues=[value])
    assert answer.SerializeToString() == b"\x0a" + bytes([len(wire)]) + wire
    with_metadata = b"\x0a\x01n\x12\x02ns\x1a\x06\x0a\x01k\x12\x01v"
    reference = CLASSES["ScaledObjectRef"].FromString(with_metadata)
    assert (reference.name, reference.namespace) == ("n", "ns")
    request = CLASSES["GetMetricsRequest"].FromString(
        b"\x0a" + bytes([len(with_metadata)]) + with_metadata + b"\x12\x01m"
    )
    assert (request.scaledObjectRef.name, request.metricName) == ("n", "m")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca, server and client certificates, and a stranger's."""
    folder = tmp_path_factory.mktemp("pki")

    openssl = program("openssl")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)

    (folder / "san").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    for ca in ("ca", "other"):
        files = ["-keyout", f"{ca}.key", "-out", f"{ca}.pem"]
        run("req", "-x509", *curve, *files, "-days", "2", "-subj", f"/CN={ca}")
    for name, ca in (("server", "ca"), ("client", "ca"), ("stranger", "other")):
        run("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ["-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "2"]
        files = ["-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile", "san"]
        run("x509", "-req", *signed, *files)
    return folder


def credentials(pki: Path, client: str = "") -> grpc.ChannelCredentials:
    pair = [(pki / f"{client}.{end}").read_bytes() for end in ("key", "pem")] if client else []
    return grpc.ssl_channel_credentials((pki / "ca.pem").read_bytes(), *pair)


def test_tls_and_who_may_ask(make: Make, pki: Path) -> None:
    keys = {"tls_cert": str(pki / "server.pem"), "tls_key": str(pki / "server.key")}
    open_to_all = make(**keys)
    open_to_all.want(0.0, Wanted(count=4, there=4))
    target = f"127.0.0.1:{open_to_all.server.port}"
    with grpc.secure_channel(target, credentials(pki)) as channel:
        assert metric(channel) == 4
    with grpc.insecure_channel(target) as channel, pytest.raises(grpc.RpcError):
        metric(channel)
    closed = make(**keys, client_ca=str(pki / "ca.pem"))
    closed.want(0.0, Wanted(count=5, there=5))
    target = f"127.0.0.1:{closed.server.port}"
    with grpc.secure_channel(target, credentials(pki, "client")) as channel:
        assert metric(channel) == 5
    for client in ("", "stranger"):
        with grpc.secure_channel(target, credentials(pki, client)) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                metric(channel)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_files_that_are_none(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tls-cert nowhere"):
        make(tls_cert="nowhere", tls_key="nowhere")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(UsageError, match="no PEM"):
        make(tls_cert="text", tls_key="text")


def test_hostile_questions_change_nothing(make: Make) -> None:
    keda = make()
    keda.want(0.0, Wanted(count=2, there=2))
    port = keda.server.port
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        raw = channel.unary_unary(f"/{SERVICE}/GetMetrics")
        for body in (b"\xff" * 40, b"\x0a\xff\xff\xff\xff\x0f", b"a" * 100_000):
            with pytest.raises(grpc.RpcError):
                raw(body, timeout=10)
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/other.Service/GetMetrics")(b"", timeout=10)
        for junk in (b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 99):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(junk)
        assert metric(channel) == 2


def test_streams_and_floods_leave_room_for_questions(make: Make) -> None:
    keda = make()
    keda.want(0.0, Wanted(count=2, there=2))
    with grpc.insecure_channel(f"127.0.0.1:{keda.server.port}") as channel:
        open_stream = channel.unary_stream(
            f"/{SERVICE}/StreamIsActive",
            request_serializer=CLASSES["ScaledObjectRef"].SerializeToString,
            response_deserializer=CLASSES["IsActiveResponse"].FromString,
        )
        streams = [open_stream(CLASSES["ScaledObjectRef"](), timeout=30) for _ in range(12)]
        told = [_told(lambda stream=each: next(stream).result) for each in streams]
        assert (told.count("True"), told.count("RESOURCE_EXHAUSTED")) == (4, 8)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: _told(lambda: metric(channel)), range(400)))
        assert answers.count("2.0") > 0
        assert set(answers) <= {"2.0", "RESOURCE_EXHAUSTED"}
        assert metric(channel) == 2
        for each in streams:
            each.cancel()


def _told(question: Callable[[], object]) -> str:
    """The answer, or the status of who gives none."""
    try:
        return str(question())
    except grpc.RpcError as error:
        return str(error.code().name)
