"""The command line of every child, from the plan alone."""

import sys
from pathlib import Path
from typing import Any

import click
import pytest

from srtm.deploy.children import children, node_id, topic_flag
from srtm.deploy.file import Plan, plan_of
from srtm.deploy.process import ChildSpec, Stage
from srtm.deploy.programs import Programs
from srtm.deploy.tables import gateway_keys
from srtm.gateway.options import GatewayOptions
from srtm.http.client import Answer
from srtm.limits.contract import Contract
from srtm.options.model import add_options, read_options
from srtm.text.duration import format_duration
from tests.support.certificates import Authority

PROGRAMS = Programs("/bin/nsqd", "/bin/nsqlookupd", "/bin/nsqadmin")
BASE: dict[str, Any] = {
    "deployment": {"data-path": "/d"},
    "distributor": False,
    "broker": [
        {"tcp-address": "0.0.0.0:4150", "nsqd-flags": ["--mem-queue-size=7"]},
        {"name": "b", "tcp-address": "127.0.0.1:4152", "http-address": "127.0.0.1:4153"},
    ],
}
WHOLE = {**BASE, "lookupd": True, "nsqadmin": True}
NO_TLS = """--tls-cert= --tls-key= --tls-root-ca-file= --tls-client-auth-policy=
            --tls-min-version=tls1.2"""
PLACED = {
    **WHOLE,
    "distributor": {"lease-duration": "5s", "token-file": "secret"},
    "broker": [{**BASE["broker"][0], "capacity": 800}, BASE["broker"][1]],
}
SENSORS = Contract.parse("sensors,rate=1100,burst=41,max-wait=2s,slo=0.99@5ms")


def plan_from(values: dict[str, Any]) -> Plan:
    return plan_of(values, "test", Path("/"))


def specs(values: dict[str, Any]) -> dict[str, ChildSpec]:
    return {each.name: each for each in children(plan_from(values), PROGRAMS, lambda: [SENSORS])}


@pytest.mark.parametrize(
    ("values", "name", "command"),
    [
        pytest.param(
            WHOLE,
            "nsqlookupd",
            """/bin/nsqlookupd --tcp-address=127.0.0.1:4160 --http-address=127.0.0.1:4161
            --broadcast-address=127.0.0.1""",
            id="nsqlookupd",
        ),
        pytest.param(
            WHOLE,
            "b-nsqd",
            """/bin/nsqd --tcp-address=/d/b/nsqd.sock --http-address=/d/b/nsqd-http.sock
            --https-address= --tls-required=0 --data-path=/d/b/data --broadcast-address=127.0.0.1
            --broadcast-tcp-port=4152 --broadcast-http-port=4153 --node-id=NODE""",
            id="nsqd-tells-the-gateway's-ports-and-no-lookupd",
        ),
        pytest.param(
            WHOLE,
            "b-gateway",
            f"""{sys.executable} -P -m srtm gateway --tcp-address=127.0.0.1:4152
            --http-address=127.0.0.1:4153 --nsqd-tcp-address=/d/b/nsqd.sock
            --nsqd-http-address=/d/b/nsqd-http.sock --lookupd-tcp-address=127.0.0.1:4160
            --broadcast-address=127.0.0.1
            --admin-socket=/d/b/admin.sock --state-file=/d/b/gateway-state.json
            --topic=sensors,rate=550.0,burst=20.5,mode=delay,max-wait=2s,slo=0.99@5ms,contract-burst=41.0""",
            id="gateway-has-its-share",
        ),
        pytest.param(
            PLACED,
            "distributor",
            f"""{sys.executable} -P -m srtm distributor --http-address=127.0.0.1:4180
            --token-file=/secret {NO_TLS}
            --store=/d/distributor.db --lease-duration=5s --unplaced=floor --audit-log=
            --log-level=info""",
            id="distributor-with-all-its-settings",
        ),
        pytest.param(
            {
                **WHOLE,
                "distributor": {
                    "http-address": ":1",
                    "store": "x.db",
                    "token-file": "t",
                    "tls-cert": "c",
                    "tls-key": "k",
                    "tls-root-ca-file": "r",
                    "distributor-tls-root-ca-file": "r",
                    "audit-log": "a",
                },
            },
            "distributor",
            f"""{sys.executable} -P -m srtm distributor --http-address=:1
            --token-file=/t --tls-cert=/c --tls-key=/k --tls-root-ca-file=/r
            --tls-client-auth-policy= --tls-min-version=tls1.2 --store=/x.db
            --lease-duration=30s --unplaced=floor --audit-log=/a --log-level=info""",
            id="distributor's-paths-are-absolute",
        ),
        pytest.param(
            {**WHOLE, "distributor": {"store": "postgresql://h/d"}},
            "distributor",
            f"""{sys.executable} -P -m srtm distributor --http-address=127.0.0.1:4180
            --token-file= {NO_TLS}
            --store=postgresql://h/d --lease-duration=30s --unplaced=floor --audit-log=
            --log-level=info""",
            id="distributor-with-postgresql",
        ),
        pytest.param(
            PLACED,
            "broker-1-gateway",
            f"""{sys.executable} -P -m srtm gateway --tcp-address=0.0.0.0:4150
            --http-address=127.0.0.1:4151 --nsqd-tcp-address=/d/broker-1/nsqd.sock
            --nsqd-http-address=/d/broker-1/nsqd-http.sock --lookupd-tcp-address=127.0.0.1:4160
            --broadcast-address=127.0.0.1 --distributor-address=127.0.0.1:4180
            --distributor-token-file=/secret --broker-name=broker-1 --broker-capacity=800
            --admin-socket=/d/broker-1/admin.sock --state-file=/d/broker-1/gateway-state.json
            --topic=sensors,rate=550.0,burst=20.5,mode=delay,max-wait=2s,slo=0.99@5ms,contract-burst=41.0""",
            id="gateway-knows-the-distributor",
        ),
        pytest.param(
            {**BASE, "broker": [BASE["broker"][0] | {"admission-log": "logs/admitted"}]},
            "broker-1-gateway",
            f"""{sys.executable} -P -m srtm gateway --tcp-address=0.0.0.0:4150
            --http-address=127.0.0.1:4151 --nsqd-tcp-address=/d/broker-1/nsqd.sock
            --nsqd-http-address=/d/broker-1/nsqd-http.sock --broadcast-address=127.0.0.1
            --admin-socket=/d/broker-1/admin.sock --state-file=/d/broker-1/gateway-state.json
            --admission-log=/logs/admitted
            --topic=sensors,rate=1100.0,burst=41.0,mode=delay,max-wait=2s,slo=0.99@5ms""",
            id="gateway-logs-admissions",
        ),
        pytest.param(
            {**BASE, "broker": [BASE["broker"][0] | {"trace-dir": "traces"}]},
            "broker-1-gateway",
            f"""{sys.executable} -P -m srtm gateway --tcp-address=0.0.0.0:4150
            --http-address=127.0.0.1:4151 --nsqd-tcp-address=/d/broker-1/nsqd.sock
            --nsqd-http-address=/d/broker-1/nsqd-http.sock --broadcast-address=127.0.0.1
            --admin-socket=/d/broker-1/admin.sock --state-file=/d/broker-1/gateway-state.json
            --trace-dir=/traces
            --topic=sensors,rate=1100.0,burst=41.0,mode=delay,max-wait=2s,slo=0.99@5ms""",
            id="gateway-traces-arrivals",
        ),
        pytest.param(
            WHOLE,
            "nsqadmin",
            "/bin/nsqadmin --http-address=127.0.0.1:4171 --lookupd-http-address=127.0.0.1:4161",
            id="nsqadmin-asks-nsqlookupd",
        ),
        pytest.param(
            {**BASE, "nsqadmin": True},
            "nsqadmin",
            """/bin/nsqadmin --http-address=127.0.0.1:4171 --nsqd-http-address=127.0.0.1:4151
            --nsqd-http-address=127.0.0.1:4153""",
            id="nsqadmin-without-nsqlookupd-asks-the-gateways",
        ),
    ],
)
def test_command_lines(values: dict[str, Any], name: str, command: str) -> None:
    plan = plan_from(values)
    expected = command.replace("NODE", str(node_id(plan, plan.brokers[-1]))).split()
    assert list(specs(values)[name].command()) == expected


@pytest.mark.parametrize(("key", "option"), gateway_keys().items())
def test_every_key_of_a_broker_reaches_its_gateway(key: str, option: str) -> None:
    """A flag of the started gateway reads back as what the file says."""
    given = {
        "default-limit": {"rate": 5, "burst": 2, "slo": "0.99@5ms"},
        "http-admin": True,
        "lookupd-tcp-address": ["h:1", "h:2"],
        "auth-http-address": ["h:1"],
    }
    together = {
        "tls-cert": {"tls-key"},
        "tls-key": {"tls-cert"},
        "tls-root-ca-file": {"tls-cert", "tls-key"},
        "tls-client-auth-policy": {"tls-cert", "tls-key", "tls-root-ca-file"},
        "distributor-tls-cert": {"distributor-tls-key", "distributor-tls-root-ca-file"},
        "distributor-tls-key": {"distributor-tls-cert", "distributor-tls-root-ca-file"},
    }
    given["tls-client-auth-policy"] = "require-verify"
    field = GatewayOptions.model_fields[option]
    value = given.get(
        key, field.default or "/f" if isinstance(field.default, str) else field.default
    )
    if isinstance(value, float):
        value = format_duration(value)
    broker = {key: value} | dict.fromkeys(together.get(key, ()), "/f")
    command = specs({"broker": [broker]})["broker-1-gateway"].command()
    seen: list[GatewayOptions] = []

    @click.command()
    @add_options(GatewayOptions)
    @click.pass_context
    def reads(context: click.Context, /, **_: object) -> None:
        seen.append(read_options(GatewayOptions, context))

    reads.main([*command[command.index("gateway") + 1 :]], standalone_mode=False)
    plan = plan_from({"broker": [broker]})
    assert getattr(seen[0], option) == getattr(plan.gateway_options(plan.brokers[0]), option)
    assert any(word.partition("=")[0] == f"--{key}" for word in command)


def test_a_gateway_has_its_whole_drain_before_it_is_killed() -> None:
    gateway = specs({"broker": [{"drain-timeout": "50s"}]})["broker-1-gateway"]
    assert gateway.drain_seconds == 50


def test_passed_flags_come_last_so_that_ours_are_always_read() -> None:
    assert list(specs(BASE)["broker-1-nsqd"].command())[-1] == "--mem-queue-size=7"


def test_without_lookupd_the_gateway_announces_nothing() -> None:
    assert not [word for word in specs(BASE)["b-gateway"].command() if "lookupd" in word]


def test_children_by_name_stage_ping_sockets_and_need() -> None:
    rows = [
        (each.name, each.stage, each.ping, len(each.sockets), each.needs)
        for each in specs(PLACED).values()
    ]
    assert rows == [
        ("nsqlookupd", Stage.LOOKUPD, "127.0.0.1:4161", 0, None),
        ("distributor", Stage.DISTRIBUTOR, "127.0.0.1:4180", 0, None),
        ("broker-1-nsqd", Stage.NSQD, "/d/broker-1/nsqd-http.sock", 2, None),
        ("broker-1-gateway", Stage.GATEWAY, "127.0.0.1:4151", 1, "broker-1-nsqd"),
        ("b-nsqd", Stage.NSQD, "/d/b/nsqd-http.sock", 2, None),
        ("b-gateway", Stage.GATEWAY, "127.0.0.1:4153", 1, "b-nsqd"),
        ("nsqadmin", Stage.NSQADMIN, "127.0.0.1:4171", 0, None),
    ]


@pytest.mark.parametrize(
    ("body", "ready"),
    [(b'{"leading": true}', True), (b'{"leading": false}', False), (b"[]", False)],
)
def test_a_distributor_is_ready_when_it_leads(body: bytes, ready: bool) -> None:
    health = Answer(200, body)
    assert specs(PLACED)["distributor"].agrees(health) is ready
    assert specs(PLACED)["nsqadmin"].agrees(health)


def test_a_gateway_is_restarted_with_the_topics_of_that_moment() -> None:
    topics: list[Contract] = []
    gateway = children(plan_from(BASE), PROGRAMS, lambda: topics)[1]
    assert not [word for word in gateway.command() if word.startswith("--topic")]
    topics.append(SENSORS)
    assert [word for word in gateway.command() if word.startswith("--topic=sensors")]


def test_node_ids_are_in_range_and_distinct() -> None:
    brokers = [{"tcp-address": f"h:{port}", "http-address": f"i:{port}"} for port in range(1, 257)]
    plan = plan_from({"broker": brokers})
    ids = [node_id(plan, broker) for broker in plan.brokers]
    assert len(set(ids)) == 256
    assert all(0 <= each < 1024 for each in ids)


def test_deployments_of_one_host_differ_in_node_ids() -> None:
    first, second = (
        plan_from({**BASE, "deployment": {"data-path": path}}) for path in ("/d", "/e")
    )
    assert node_id(first, first.brokers[0]) != node_id(second, second.brokers[0])


@pytest.mark.parametrize("brokers", [1, 2, 3, 7])
def test_a_share_is_read_back_as_it_was_written(brokers: int) -> None:
    read = Contract.parse(topic_flag(SENSORS, brokers))
    assert read.limit() == SENSORS.limit().share(brokers)
    assert read.topic == "sensors"


@pytest.mark.parametrize(
    ("given", "ping", "path"),
    [
        pytest.param({}, "127.0.0.1:4151", "/ping", id="nothing-is-required"),
        pytest.param({"tls-required": "tcp-https"}, "127.0.0.1:4151", "/ping", id="but-for-http"),
        pytest.param({"tls-required": True}, "/d/broker-1/admin.sock", "/topics", id="everywhere"),
    ],
)
def test_a_gateway_whose_http_door_is_closed_is_ready_when_its_admin_door_says_so(
    authority: Authority, given: dict[str, object], ping: str, path: str
) -> None:
    cert, key = authority.issue("broker")
    table = {"tls-cert": cert, "tls-key": key, **given}
    gateway = specs({"deployment": {"data-path": "/d"}, "broker": [table]})["broker-1-gateway"]
    assert (gateway.ping, gateway.path) == (ping, path)
    assert "--https-address=127.0.0.1:4152" in gateway.command()


def test_what_go_reads_of_the_environment_is_nsqds_alone() -> None:
    broker = {**BASE["broker"][0], "gogc": "off", "gomemlimit": "2GiB"}
    found = specs({**BASE, "broker": [broker, {**BASE["broker"][1], "gogc": 400}]})
    assert found["broker-1-nsqd"].environment == {"GOGC": "off", "GOMEMLIMIT": "2GiB"}
    assert found["b-nsqd"].environment == {"GOGC": "400"}
    assert found["b-gateway"].environment == {}
    assert specs(BASE)["b-nsqd"].environment == {}
