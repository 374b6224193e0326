"""Faults of the gateway's own code: whom they hit is closed, and everybody else is served.

The gateway that runs here has the faults that its first lines put into it.
"""

import socket
import sys
from collections.abc import Iterator

import pytest

from srtm.nsq.commands import pub
from tests.support.servers import GatewayProcess, Servers, http, wait_for
from tests.support.v2 import V2

FAULTS = """
import sys
from srtm.gateway import tcp_door
from srtm.gateway.server import Gateway
from srtm.gateway.topics import Topics
from srtm.gateway.watch import NsqdWatch

offer, door, consumed = Topics.offer, tcp_door.Client, Gateway.consumed
carrier, taken = Topics.carrier, []

def failing_offer(self, run):
    if run.topic == b"offered":
        raise ZeroDivisionError("in offer")
    offer(self, run)

def failing_carrier(self, topic):
    if topic.name == b"carried":
        raise ZeroDivisionError("in carrier")
    return carrier(self, topic)

def failing_client(gateway, connection, address):
    taken.append(address)
    if len(taken) == 1:
        raise ZeroDivisionError("in accept")
    return door(gateway, connection, address)

checked, check = [], NsqdWatch.check

async def failing_check(self, topics):
    checked.append(1)
    if len(checked) == 1:
        raise ZeroDivisionError("in check")
    await check(self, topics)

def failing_consumed(self, name, raw, ends, now):
    if name == b"consumed":
        raise ZeroDivisionError("in consumed")
    consumed(self, name, raw, ends, now)

Topics.offer, Topics.carrier = failing_offer, failing_carrier
tcp_door.Client = failing_client
Gateway.consumed = failing_consumed
NsqdWatch.check = failing_check
from srtm.cli.main import main
sys.argv = sys.argv[3:]  # behind the python that it stands before
main()
"""


@pytest.fixture
def gateway(servers: Servers) -> Iterator[GatewayProcess]:
    made = servers.gateway(prefix=(sys.executable, "-c", FAULTS))
    yield made
    assert made.process.alive, made.process.text()


def is_ended(client: V2) -> bool:
    try:
        return client.socket.recv(100) == b""
    except ConnectionResetError:
        return True


def serves(gateway: GatewayProcess, topic: str) -> None:
    with V2(gateway.tcp) as other:
        other.send(pub(topic.encode(), b"x"))
        assert other.reply() == b"OK"


def test_each_fault_closes_what_it_belongs_to(gateway: GatewayProcess) -> None:
    with V2(gateway.tcp) as first:
        assert is_ended(first), "of the fault as it was taken"
    wait_for(lambda: gateway.metric("srtm_faults_total") == 2, "a look at nsqd failed, one of many")
    for number, topic in enumerate(["offered", "carried", "offered", "carried"]):
        with V2(gateway.tcp) as bystander, V2(gateway.tcp) as client:
            bystander.send(pub(b"good", b"x"))
            assert bystander.reply() == b"OK"
            client.send(pub(topic.encode(), b"x"))
            assert is_ended(client), topic
            bystander.send(pub(b"good", b"x"))
            assert bystander.reply() == b"OK"
        assert gateway.metric("srtm_faults_total") == 3 + number
    serves(gateway, "consumed")
    with V2(gateway.tcp) as consumer:
        consumer.subscribe("consumed", "c", ready=1)
        wait_for(lambda: gateway.metric("srtm_faults_total") == 7, "the delivery fails")
        wait_for(lambda: is_ended(consumer), "the consumer is closed")
    serves(gateway, "good")
    text = gateway.process.text()
    assert text.count("Traceback") == 5, "each once"
    assert text.count("ZeroDivisionError: in offer") == 1


def test_an_http_publish_in_a_failing_topic_is_answered(gateway: GatewayProcess) -> None:
    with socket.create_connection(tuple(gateway.tcp.split(":"))):  # type: ignore[arg-type]
        wait_for(lambda: gateway.metric("srtm_faults_total") >= 1, "the first is not taken")
    status, answer, _ = http(gateway.http, "/pub?topic=carried", b"x")
    assert (status, answer["message"].partition(":")[0]) == (504, "OUTCOME_UNKNOWN")
    assert http(gateway.http, "/pub?topic=offered", b"x")[0] == 500
    assert http(gateway.http, "/pub?topic=good", b"x")[0] == 200
