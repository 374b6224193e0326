"""The deployment file: every slip is one clear line, and a good file means what it says."""

import re
from pathlib import Path

import pytest

from srtm.deploy.file import Plan, read_plan
from srtm.deploy.tables import OWN_GATEWAY_OPTIONS, BrokerTable, gateway_keys
from srtm.gateway.options import GatewayOptions
from srtm.host.certificates import TlsFiles
from srtm.text.address import Address
from srtm.text.errors import UsageError

WHOLE = """
[deployment]
name = "local"
data-path = "./srtm-data"
broadcast-address = "10.0.0.7"
[distributor]
http-address = "10.0.0.7:4280"
store = "placed.db"
lease-duration = "5s"
token-file = "secret"
[lookupd]
tcp-address = "127.0.0.1:4260"
http-address = "127.0.0.1:4261"
[nsqadmin]
http-address = "127.0.0.1:4271"
[[broker]]
name = "left"
tcp-address = "127.0.0.1:4250"
http-address = "127.0.0.1:4251"
nsqd-flags = ["--mem-queue-size=100000", "-verbose"]
[[broker]]
tcp-address = ":4252"
http-address = "[::1]:4253"
capacity = 20000
[[topic]]
name = "sensors"
rate = 1100
burst = 40
slo = "0.99@5ms"
mode = "reject"
max-wait = "2s"
[[topic]]
name = "rooms"
rate = 10
burst = 1
publishers = "rooms.csv"
keys = ["a", "b"]
"""
BROKER = '[[broker]]\ntcp-address = "127.0.0.1:4150"\nhttp-address = "127.0.0.1:4151"\n'
OTHER = '[[broker]]\ntcp-address = "127.0.0.1:4152"\nhttp-address = "127.0.0.1:4153"\n'
TLS = 'tls-cert = "tls.pem"\ntls-key = "tls.key"\n'
TOPIC = '[[topic]]\nname = "t"\nrate = 5\nburst = 2\n'


def read(folder: Path, text: str) -> Plan:
    file = folder / "srtm.toml"
    file.write_text(text)
    return read_plan(file)


def test_a_whole_file_means_what_it_says(tmp_path: Path) -> None:
    plan = read(tmp_path, WHOLE)
    assert plan.deployment.broadcast_address == "10.0.0.7"
    assert plan.layout.data_path == tmp_path / "srtm-data"
    assert plan.broker_names == ["left", "broker-2"]
    assert plan.brokers[0].nsqd_flags == ("--mem-queue-size=100000", "-verbose")
    assert plan.brokers[1].tcp_address == Address("", 4252)
    assert plan.brokers[1].http_address == Address("::1", 4253)
    assert plan.lookupd
    assert plan.lookupd.tcp_address == Address("127.0.0.1", 4260)
    assert plan.nsqadmin
    assert plan.nsqadmin.http_address.port == 4271
    assert plan.topics[0].topic == "sensors"
    assert plan.topics[0].max_wait == 2.0
    assert plan.topics[0].publishers is None
    assert (plan.topics[1].publishers, plan.topics[1].keys) == (tmp_path / "rooms.csv", ("a", "b"))
    assert "publishers" not in plan.topics[1].document()
    assert [each.capacity for each in plan.brokers] == [0, 20000]
    assert plan.distributor
    assert plan.distributor.http_address == Address("10.0.0.7", 4280)
    assert plan.distributor.lease_duration == 5
    assert plan.distributor.store == str(tmp_path / "placed.db")
    assert plan.distributor.token_file == str(tmp_path / "secret")
    assert len(list(plan.addresses())) == 8


def test_one_empty_broker_table_is_enough(tmp_path: Path) -> None:
    plan = read(tmp_path, "[[broker]]")
    assert str(plan.brokers[0].tcp_address) == "127.0.0.1:4150"
    assert plan.lookupd is None
    assert plan.distributor
    assert plan.distributor.http_address == Address("127.0.0.1", 4180)
    assert plan.distributor.store == str(tmp_path / "srtm-data" / "distributor.db")
    assert plan.nsqadmin is None
    assert plan.topics == ()


@pytest.mark.parametrize("name", ["lookupd", "distributor"])
@pytest.mark.parametrize(("value", "started"), [("true", True), ("false", False), ("{}", True)])
def test_a_program_may_be_switched_on_or_off(
    tmp_path: Path, name: str, value: str, started: bool
) -> None:
    assert bool(getattr(read(tmp_path, f"{name} = {value}\n{BROKER}"), name)) is started


def test_an_absolute_data_path_stays(tmp_path: Path) -> None:
    assert read(tmp_path, f'[deployment]\ndata-path = "/v/d"\n{BROKER}').layout.data_path == Path(
        "/v/d"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("[[broker]\n", ["not TOML", "line 1"], id="toml-syntax"),
        pytest.param("", ["no [[broker]]"], id="no-broker"),
        pytest.param(f"{BROKER}port = 3", ['unknown key "port"', "known are"], id="unknown-key"),
        pytest.param(
            '[[broker]]\ntcp-adress = "a:1"', ['did you mean "tcp-address"?'], id="misspelt-key"
        ),
        pytest.param(
            f"{BROKER}{TOPIC}fair = 'key'", ['fair = "key" needs publishers'], id="keys-of-nobody"
        ),
        pytest.param(
            f"{BROKER}{TOPIC}lease-grace = '5m'",
            ["lease-grace needs publishers"],
            id="leases-of-nobody",
        ),
        pytest.param(
            f"{BROKER}{TOPIC}max_wait = '1s'", ['did you mean "max-wait"?'], id="misspelt-in-topic"
        ),
        pytest.param(
            f"[broker]\nname='b'\n{TOPIC}", ["broker", "must be a list"], id="broker-as-one-table"
        ),
        pytest.param(
            "[[broker]]\ntcp-address = 4150", ["broker.0.tcp-address", "HOST:PORT"], id="bare-port"
        ),
        pytest.param(
            '[[broker]]\ntcp-address = "h:70000"', ["70000", "1 to 65535"], id="port-out-of-range"
        ),
        pytest.param('[[broker]]\ntcp-address = "h:0"', ["1 to 65535"], id="port-zero"),
        pytest.param('[[broker]]\ntcp-address = "::1:4150"', ["HOST:PORT"], id="bare-ipv6"),
        pytest.param(
            f"{BROKER}{OTHER}".replace("4152", "4150"),
            ["tcp-address of broker broker-2 127.0.0.1:4150", "tcp-address of broker broker-1"],
            id="address-twice",
        ),
        pytest.param(
            '[[broker]]\ntcp-address = ":4150"\nhttp-address = "localhost:4150"',
            ["taken by tcp-address of broker broker-1"],
            id="all-addresses-include-one",
        ),
        pytest.param(
            f"lookupd = {{http-address = '127.0.0.1:4151'}}\n{BROKER}",
            ["http-address of lookupd 127.0.0.1:4151", "http-address of broker broker-1"],
            id="lookupd-on-a-broker's-address",
        ),
        pytest.param(
            f"distributor = {{http-address = ':4150'}}\n{BROKER}",
            ["http-address :4150 is reached from other hosts", "token-file"],
            id="distributor-open-to-all",
        ),
        pytest.param(
            f"distributor = {{http-address = '127.0.0.1:4150'}}\n{BROKER}",
            ["http-address of distributor 127.0.0.1:4150", "tcp-address of broker broker-1"],
            id="distributor-on-a-broker's-address",
        ),
        pytest.param(
            f"distributor = {{lease = '1m'}}\n{BROKER}",
            ["distributor", 'unknown key "lease"', "lease-duration"],
            id="misspelt-in-distributor",
        ),
        pytest.param(
            f"distributor = {{lease-duration = '10ms'}}\n{BROKER}",
            ["distributor.lease-duration", "greater than or equal to 1"],
            id="lease-too-short",
        ),
        pytest.param(f"distributor = 'h:1'\n{BROKER}", ["distributor"], id="distributor-as-text"),
        pytest.param(
            f"distributor = false\n{BROKER}capacity = 3",
            ["broker broker-1: capacity", "leave out distributor = false"],
            id="capacity-without-distributor",
        ),
        pytest.param(f"{BROKER}capacity = -3", ["broker.0.capacity", "-3"], id="capacity-negative"),
        pytest.param(
            f"distributor = false\n{BROKER}{TOPIC}publishers = 'p.csv'",
            ["topic t: publishers", "leave out distributor = false"],
            id="publishers-without-distributor",
        ),
        pytest.param(
            f"{BROKER}{TOPIC}keys = ['a']", ["topic.0", "keys", "publishers"], id="keys-alone"
        ),
        pytest.param(
            f"{BROKER}{TOPIC}publishers = 3",
            ["topic.0.publishers", "path"],
            id="publishers-no-path",
        ),
        pytest.param(
            f"{BROKER}{TOPIC}publishers = 'p.csv'\nkeys = ['']",
            ["topic.0.keys.0", "at least 1"],
            id="an-empty-key",
        ),
        pytest.param(
            f'{BROKER}name = "b"\n{OTHER}name = "b"', ["broker name b is given twice"], id="twins"
        ),
        pytest.param(f"{BROKER}{TOPIC}{TOPIC}", ["topic name t is given twice"], id="topic-twice"),
        pytest.param(f'{BROKER}name = "logs"', ["'logs'"], id="reserved-name"),
        pytest.param(f'{BROKER}name = "../b"', ["'../b' is not a name"], id="path-as-name"),
        pytest.param(
            f"{BROKER}{OTHER}{TOPIC}".replace("burst = 2", "burst = 1"),
            ["topic t", "burst 1 cannot be split over 2 brokers"],
            id="burst-under-one-a-broker",
        ),
        pytest.param(
            f"{BROKER}{TOPIC}".replace('"t"', '"no topic"'),
            ["'no topic' is not a topic name"],
            id="topic-name",
        ),
        pytest.param(f"{BROKER}[[topic]]\nrate = 1", ["name is missing"], id="topic-without-name"),
        pytest.param(
            f"{BROKER}{TOPIC}".replace("rate = 5\n", ""), ["rate", "needed"], id="no-rate"
        ),
        pytest.param(
            f"{BROKER}{TOPIC}slo = '99@1ms'", ["topic.0.slo", "0.99"], id="slo-in-percent"
        ),
        pytest.param(f"{BROKER}gogc = 'off'", ["gogc = off", "gomemlimit"], id="no-garbage-at-all"),
        pytest.param(f"{BROKER}gogc = 0", ["gogc", "0 is neither"], id="gogc-of-nothing"),
        pytest.param(f"{BROKER}gogc = 'often'", ["gogc", "'often' is neither"], id="gogc-in-words"),
        pytest.param(
            f"{BROKER}gomemlimit = '2GB'", ["gomemlimit", "'2GB' is no size"], id="not-gos-sizes"
        ),
        pytest.param(
            f"{BROKER}nsqd-flags = ['--data-path=/x']", ["--data-path cannot be set"], id="own-flag"
        ),
        pytest.param(
            f"{BROKER}nsqd-flags = ['-lookupd-tcp-address=h:1']",
            ["--lookupd-tcp-address cannot be set", "announces"],
            id="own-flag-with-one-dash",
        ),
        pytest.param(
            f"{BROKER}nsqd-flags = ['--tls-cert=a']",
            ["--tls-cert cannot be set: clients speak TLS with the gateway: set the broker's tls-"],
            id="TLS-of-nsqd",
        ),
        pytest.param(
            f"{BROKER}nsqd-flags = ['--auth-http-address=a:1']",
            ["the gateway asks auth servers: set the broker's auth-http-address"],
            id="AUTH-of-nsqd",
        ),
        pytest.param(
            f"{BROKER}tls-cert = 'a'",
            ["broker broker-1: TLS needs both --tls-cert and --tls-key"],
            id="a-certificate-without-a-key",
        ),
        pytest.param(
            f"{BROKER}{TLS}{OTHER}",
            ["tcp-address of broker broker-2 127.0.0.1:4152 is taken by https-address of broker b"],
            id="https-on-another-broker's-address",
        ),
        pytest.param(
            f"{BROKER}{TLS}https-address = ':4152'\n{OTHER}{TLS}https-address = ':4152'",
            ["is taken by https-address of broker broker-1"],
            id="https-twice",
        ),
        pytest.param(
            f"{BROKER}https-address = 'x'",
            ["broker.0.https-address: 'x' is not an address"],
            id="https-without-a-port",
        ),
        pytest.param(
            f"{BROKER}nsqd-flags = ['x']", ["'x' is not a flag"], id="word-that-ends-go-flags"
        ),
        pytest.param(f"{BROKER}nsqd-flags = ['--']", ["not a flag"], id="dashes-that-end-go-flags"),
        pytest.param(
            f"{BROKER}max-topics = 0",
            ["broker broker-1: max-topics", "greater than or equal to 1 (got 0)"],
            id="gateway-option-out-of-bounds",
        ),
        pytest.param(
            f"{BROKER}default-limit = 'rate=0,burst=1'",
            ["broker broker-1: --default-limit rate=0,burst=1: rate"],
            id="gateway-option-with-its-own-parser",
        ),
        pytest.param(
            f"{BROKER}http-admn = true", ['did you mean "http-admin"?'], id="misspelt-gateway-key"
        ),
        pytest.param(f"{BROKER}gateway = {{}}", ['unknown key "gateway"'], id="our-own-field"),
        pytest.param(
            f"{BROKER}nsqd-flags = ['--max-body-size=0x1400000']\nmax-connection-backlog-bytes = 9",
            ["broker broker-1", "--max-connection-backlog-bytes 9", "--max-body-size 20971520"],
            id="backlog-under-nsqd's-body",
        ),
        pytest.param(
            f"{BROKER}max-connection-backlog-bytes = 5242879",
            ["--max-body-size 5242880"],
            id="backlog-under-nsqd's-default-body",
        ),
    ],
)
def test_a_slip_is_one_line_with_file_and_place(tmp_path: Path, text: str, said: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    line = str(caught.value)
    assert line.startswith(str(tmp_path / "srtm.toml"))
    assert "\n" not in line
    for part in said:
        assert part in line


@pytest.mark.parametrize("option", OWN_GATEWAY_OPTIONS)
def test_an_option_that_srtm_up_sets_is_no_key(tmp_path: Path, option: str) -> None:
    assert option in GatewayOptions.model_fields
    key = option.replace("_", "-")
    said = re.escape(f"{key} cannot be set: {OWN_GATEWAY_OPTIONS[option]}")
    with pytest.raises(UsageError, match=said):
        read(tmp_path, f"{BROKER}{key} = 'x'")


@pytest.mark.parametrize("option", GatewayOptions.model_fields)
def test_every_option_of_the_gateway_has_a_key_or_is_set_by_srtm_up(option: str) -> None:
    own = option in BrokerTable.model_fields or option in OWN_GATEWAY_OPTIONS
    assert own != (option in gateway_keys().values())


@pytest.mark.parametrize(
    ("flags", "bytes_"),
    [
        pytest.param("", None, id="nsqd's-default"),
        pytest.param("'--max-body-size=8388608'", None, id="as-big-as-the-gateway's-default"),
        pytest.param("'-max-body-size=9_000_000'", 9_000_000, id="as-Go-writes-numbers"),
        pytest.param("'--max-body-size=1', '--max-body-size=20971520'", 20971520, id="last-counts"),
    ],
)
def test_the_gateway_takes_bodies_as_big_as_its_nsqd(
    tmp_path: Path, flags: str, bytes_: int | None
) -> None:
    plan = read(tmp_path, f"{BROKER}nsqd-flags = [{flags}]")
    options = plan.gateway_options(plan.brokers[0])
    given = "max_connection_backlog_bytes" in options.model_fields_set
    assert (options.max_connection_backlog_bytes if given else None) == bytes_


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: No such file"):
        read_plan(tmp_path / "none.toml")


def test_a_socket_path_that_is_too_long_is_told_with_the_excess(tmp_path: Path) -> None:
    longest = len("/broker-1/nsqd-http.sock")
    fits = "/" + "d" * (107 - longest - 1)
    plan = read(tmp_path, f'[deployment]\ndata-path = "{fits}"\n{BROKER}')
    assert len(str(plan.layout.broker("broker-1").nsqd_http)) == 107
    with pytest.raises(UsageError, match=r"nsqd-http\.sock has 108 bytes.* 1 bytes shorter"):
        read(tmp_path, f'[deployment]\ndata-path = "{fits}d"\n{BROKER}')


@pytest.mark.parametrize(
    ("given", "https"),
    [
        pytest.param(TLS, "127.0.0.1:4151", id="the-next-port"),
        pytest.param(f"{TLS}https-address = ':9'", "0.0.0.0:9", id="given"),
        pytest.param(f"{TLS}https-address = ''", "", id="none"),
        pytest.param("", "", id="without-a-certificate"),
    ],
)
def test_https_is_on_the_port_after_http(tmp_path: Path, given: str, https: str) -> None:
    plan = read(tmp_path, f"{BROKER.replace('4151', '4150').replace('4150', '4149', 1)}{given}")
    options = plan.gateway_options(plan.brokers[0])
    assert (options.https_address if options.tls_files else "") == https
    listened = [key for key, _ in plan.addresses() if key.startswith("https")]
    assert listened == (["https-address of broker broker-1"] if https else [])


def test_certificates_are_relative_to_the_file(tmp_path: Path) -> None:
    root = 'tls-root-ca-file = "/etc/ca.pem"\ntls-required = "tcp-https"\n'
    policy = 'tls-client-auth-policy = "require-verify"\nauth-http-address = ["h:1"]\n'
    plan = read(tmp_path, f"{BROKER}{TLS}{root}{policy}")
    options = plan.gateway_options(plan.brokers[0])
    assert options.tls_files == TlsFiles(
        str(tmp_path / "tls.pem"), str(tmp_path / "tls.key"), "/etc/ca.pem", require_peer=True
    )
    assert options.auth_http_address == ("h:1",)
