"""NSQ's own tools work through the gateway as they do with nsqd."""

import subprocess

import pytest

from tests.support.servers import GatewayProcess, Servers, http, program, wait_for
from tests.support.v2 import V2


@pytest.fixture(scope="module")
def gateway(shared: Servers) -> GatewayProcess:
    return shared.gateway("--topic=paced,rate=100,burst=20,slo=0.99@10ms", unix=True)


def run(name: str, *flags: str, stdin: bytes = b"", seconds: float = 20) -> bytes:
    """stdout of a tool that ends by itself."""
    done = subprocess.run(
        [program(name), *flags], input=stdin, capture_output=True, timeout=seconds, check=True
    )
    return done.stdout


@pytest.mark.parametrize("topic", ["free", "paced"])
def test_to_nsq_publishes_and_nsq_tail_prints_each_line_once(
    gateway: GatewayProcess, topic: str
) -> None:
    lines = sorted(b"%s line %d" % (topic.encode(), number) for number in range(80))
    run(
        "to_nsq",
        f"-topic={topic}",
        f"-nsqd-tcp-address={gateway.tcp}",
        stdin=b"\n".join([*lines, b""]),
    )
    assert gateway.ours(topic)["admitted"] == 80
    tail = ["-channel=tail", "-n=80", f"-nsqd-tcp-address={gateway.tcp}"]
    printed = run("nsq_tail", f"-topic={topic}", *tail)
    assert sorted(printed.splitlines()) == lines
    if topic == "paced":  # one at a time, at best ten milliseconds apart
        assert gateway.ours(topic)["token_wait"]["p99"] > 0


def test_nsq_to_file_writes_what_was_published(servers: Servers, gateway: GatewayProcess) -> None:
    out = servers.folder / "archive"
    process = servers.process(
        "nsq_to_file",
        [
            program("nsq_to_file"),
            "-topic=archived",
            "-channel=file",
            f"-output-dir={out}",
            f"-work-dir={out}",
            f"-nsqd-tcp-address={gateway.tcp}",
            "-max-in-flight=50",
            "-sync-interval=200ms",
        ],
    )
    bodies = sorted(b"%d" % number for number in range(500))
    assert http(gateway.http, "/mpub?topic=archived", b"\n".join(bodies))[0] == 200

    def written() -> list[bytes]:
        return sorted(b"".join(file.read_bytes() for file in out.rglob("*.log*")).splitlines())

    wait_for(lambda: written() == bodies, "every message is in the file", 20)
    assert process.stop() == 0


def test_nsq_stat_shows_the_channels_figures(gateway: GatewayProcess) -> None:
    with V2(gateway.tcp) as consumer:
        consumer.subscribe("watched", "c", ready=5)
        http(gateway.http, "/mpub?topic=watched", b"\n".join([b"x"] * 8))
        for _ in range(5):
            consumer.message(finish=False)
        printed = run(
            "nsq_stat",
            "-topic=watched",
            "-channel=c",
            f"-nsqd-http-address={gateway.http}",
            "-count=1",
            "-interval=100ms",
        ).decode()
    total, _memory, _disk, in_flight, _deferred = printed.splitlines()[-1].split("|")[1].split()
    assert (total, in_flight) == ("3", "5"), printed
