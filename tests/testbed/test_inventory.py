"""The file of a testbed: every slip is one clear line, and each host gets its part."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from srtm.deploy.file import plan_of, read_plan
from srtm.host.certificates import PLAIN_TEXT
from srtm.http.service import ClientFiles
from srtm.testbed.inventory import Inventory, Part, read_inventory
from srtm.text.errors import UsageError

LAB = """
[deployment]
name = "lab"
[[host]]
name = "h1"
kind = "netns"
[[host]]
name = "h2"
kind = "netns"
cores = 1
[[host]]
name = "h3"
kind = "netns"
[lookupd]
[distributor]
host = "h2"
[[broker]]
name = "b1"
host = "h1"
admission-log = "log"
[[broker]]
name = "b2"
host = "h2"
tcp-address = "127.0.0.1:4250"
http-address = "0.0.0.0:4251"
capacity = 500
[[load]]
host = "h3"
[[subscriber]]
host = "h3"
[[topic]]
name = "even"
rate = 100
burst = 10
[[topic]]
name = "placed"
rate = 100
burst = 10
publishers = "rooms.csv"
"""


def read(folder: Path, text: str = LAB) -> Inventory:
    (folder / "rooms.csv").write_text("id,key,rate\np1,,10\n")
    file = folder / "lab.toml"
    file.write_text(text)
    return read_inventory(file)


def part(inventory: Inventory, host: str) -> tuple[Part, dict[str, Any]]:
    found = inventory.part(inventory.host(host))
    return found, tomllib.loads(found.text)


def test_each_host_gets_its_part(tmp_path: Path) -> None:
    inventory = read(tmp_path)
    assert [each.address for each in inventory.hosts] == [f"198.18.0.1{n}" for n in (1, 2, 3)]
    assert [each.host for each in inventory.plan.loads] == ["h3"]
    assert [each.host for each in inventory.plan.subscribers] == ["h3"]
    assert str(inventory.broker_http_address(inventory.plan.brokers[1])) == "198.18.0.12:4251"

    first, tables = part(inventory, "h1")
    root = tmp_path / "srtm-data" / "h1"
    assert first.runs == ("lookupd", "b1")
    assert tables["deployment"] == {
        "name": "lab",
        "data-path": str(root),
        "broadcast-address": "198.18.0.11",
    }
    assert tables["distributor"] is False
    assert tables["elsewhere"] == {
        "brokers": ["b1", "b2"],
        "distributor-address": "198.18.0.12:4180",
        "distributor-token-file": f"{root}/testbed/token",
        "distributor-tls-root-ca-file": "plain-text",
    }
    assert tables["lookupd"]["tcp-address"] == "198.18.0.11:4160"
    assert tables["broker"][0]["tcp-address"] == "198.18.0.11:4150"
    assert tables["broker"][0]["admission-log"] == f"{root}/log"
    assert [each["name"] for each in tables["topic"]] == ["even"]

    second, tables = part(inventory, "h2")
    assert second.runs == ("distributor", "b2")
    assert second.files == {"publishers-placed.csv": tmp_path / "rooms.csv"}
    assert tables["distributor"]["http-address"] == "198.18.0.12:4180"
    assert tables["distributor"]["distributor-tls-root-ca-file"] == "plain-text"
    assert tables["elsewhere"]["lookupd-tcp-address"] == "198.18.0.11:4160"
    assert tables["broker"][0]["tcp-address"] == "198.18.0.12:4250"
    assert tables["broker"][0]["http-address"] == "0.0.0.0:4251"
    assert [each["name"] for each in tables["topic"]] == ["even", "placed"]

    third, _ = part(inventory, "h3")
    assert third.runs == ()


def test_a_part_is_a_file_for_srtm_up(tmp_path: Path) -> None:
    inventory = read(tmp_path)
    tables = part(inventory, "h1")[1]
    plan = plan_of(tables, "h1", tmp_path, check_files=False)
    assert plan.broker_count == 2
    assert plan.distributor_at == (
        str(inventory.distributor_address),
        ClientFiles(tables["elsewhere"]["distributor-token-file"], PLAIN_TEXT),
    )
    assert plan.layout.data_path == tmp_path / "srtm-data" / "h1"


def test_local_hosts_have_loopback_addresses_and_need_no_token(tmp_path: Path) -> None:
    inventory = read(tmp_path, LAB.replace("netns", "local"))
    assert [each.address for each in inventory.hosts] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    assert inventory.token_file is None


def test_a_file_with_hosts_is_not_for_srtm_up(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text("[[broker]]\n")
    with pytest.raises(UsageError, match=r"no \[\[host\]\]: srtm up"):
        read_inventory(file)
    assert not read_plan(file).hosts


SLIPS = [
    pytest.param('host = "h3"\n[[sub', 'host = "h9"\n[[sub', "load load-1: no .* 'h9'", id="host"),
    pytest.param('name = "h3"', 'name = "h1"', "host name h1 is given twice", id="two-of-a-name"),
    pytest.param(
        'name = "b1"\nhost = "h1"', 'name = "b1"', "broker b1: host is missing", id="none"
    ),
    pytest.param(
        'tcp-address = "127.0.0.1:4250"',
        'tcp-address = "127.0.0.1:4251"',
        "http-address of broker b2 .*4251 is taken by tcp-address of broker b2 on host h2",
        id="two-on-one-port",
    ),
    pytest.param('"netns"\ncores', '"local"\ncores', "make all hosts kind = 'netns'", id="mixed"),
    pytest.param('"netns"\ncores', '"ssh"\ncores', "host h2: address is missing", id="no-address"),
    pytest.param("cores = 1", 'login = "x"', "host h2: login needs kind = 'ssh'", id="login"),
    pytest.param(
        'kind = "netns"\ncores = 1',
        'kind = "ssh"\naddress = "10.0.0.1"\nlogin = "-oProxyCommand=x"',
        "is neither HOST nor USER@HOST",
        id="a-login-that-is-an-option",
    ),
    pytest.param("cores = 1", 'address = "10.0.0.1"', "gets its address by itself", id="given"),
    pytest.param("cores = 1", "core = 1", 'did you mean "cores"', id="a-slip-of-the-keyboard"),
    pytest.param("cores = 1", 'bandwidth = "fast"', "must be like 10mbit", id="bandwidth"),
    pytest.param('"rooms.csv"', '"none.csv"', "none.csv", id="no-publishers"),
    pytest.param("burst = 10\n[[", "burst = 1\n[[", "topic even", id="a-burst-too-small-to-split"),
]


@pytest.mark.parametrize(("text", "instead", "says"), SLIPS)
def test_a_slip_is_one_clear_line(tmp_path: Path, text: str, instead: str, says: str) -> None:
    assert text in LAB
    with pytest.raises(UsageError, match=says) as caught:
        read(tmp_path, LAB.replace(text, instead, 1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name = "h3"\nkind = "netns"', 'name = "h3"\nkind = "ssh"\naddress = "-oProxyCommand=x"',
         "host h3: address '-oProxyCommand=x' is neither a name nor an IP address"),
        ('name = "lab"', 'name = "lab"\ndata-path = "~nobody-of-this-name/x"', "begins with ~"),
        ('admission-log = "log"', 'admission-log = "a\\u0000b"', "a character that is none"),
    ],
)  # fmt: skip
def test_hostile_words_are_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read(tmp_path, LAB.replace(old, new, 1))


SECURE = LAB.replace('name = "lab"', 'name = "lab"\nsecure = true')


def test_a_secure_testbed_names_the_certificate_of_the_host(tmp_path: Path) -> None:
    inventory = read(tmp_path, SECURE.replace('name = "b2"', 'name = "b2"\ntls-required = true'))
    own = tmp_path / "srtm-data/h1/testbed"
    _, tables = part(inventory, "h1")
    doors = {key: value for key, value in tables["broker"][0].items() if key.startswith("tls-")}
    assert doors == {
        "tls-cert": f"{own}/host.pem",
        "tls-key": f"{own}/host.key",
        "tls-root-ca-file": f"{own}/ca.pem",
        "tls-required": "tcp-https",
    }
    assert "secure" not in tables["deployment"]
    assert tables["elsewhere"]["distributor-tls-root-ca-file"] == f"{own}/ca.pem"
    distributor = part(inventory, "h2")[1]["distributor"]
    assert (distributor["tls-cert"], distributor["distributor-tls-root-ca-file"]) == (
        f"{own.parents[1]}/h2/testbed/host.pem",
        f"{own.parents[1]}/h2/testbed/ca.pem",
    )
    assert part(inventory, "h2")[1]["broker"][0]["tls-required"] is True
    plan = plan_of(tables, "h1", tmp_path, check_files=False)
    assert plan.gateway_options(plan.brokers[0]).https_address == "198.18.0.11:4152"


def test_nsqadmin_of_a_secure_testbed_verifies_its_brokers(tmp_path: Path) -> None:
    root = "http-client-tls-root-ca-file"
    text = SECURE.replace("[lookupd]", "[lookupd]\n[nsqadmin]")
    own = tmp_path / "srtm-data/h1/testbed"
    assert part(read(tmp_path, text), "h1")[1]["nsqadmin"] == {
        "http-address": "198.18.0.11:4171",
        root: f"{own}/ca.pem",
    }
    text = text.replace("[nsqadmin]", f'[nsqadmin]\n{root} = "/other.pem"')
    assert part(read(tmp_path, text), "h1")[1]["nsqadmin"][root] == "/other.pem"


def test_https_of_a_table_is_on_its_host(tmp_path: Path) -> None:
    text = SECURE.replace('host = "h1"\nadm', 'host = "h1"\nhttps-address = "127.0.0.1:443"\nadm')
    assert part(read(tmp_path, text), "h1")[1]["broker"][0]["https-address"] == "198.18.0.11:443"


def test_two_brokers_of_a_host_must_not_have_one_https_address(tmp_path: Path) -> None:
    text = SECURE.replace('4250"', '4152"').replace(
        'name = "b2"\nhost = "h2"', 'name = "b2"\nhost = "h1"'
    )
    with pytest.raises(UsageError, match="4152 is taken by https-address of broker b1"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param(
            'admission-log = "log"',
            'tls-cert = "b1.pem"\ntls-key = "b1.key"',
            "lab.toml: tls-cert b1.pem: write its absolute path on the host, or secure = true",
            id="a-certificate-near-the-file",
        ),
        pytest.param(
            "[distributor]",
            '[distributor]\ndistributor-tls-root-ca-file = "ca.pem"',
            "distributor-tls-root-ca-file ca.pem: write its absolute path on the host",
            id="an-authority-near-the-file",
        ),
        pytest.param(
            "[lookupd]",
            '[nsqadmin]\nhttp-client-tls-root-ca-file = "ca.pem"',
            "http-client-tls-root-ca-file ca.pem: write its absolute path on the host",
            id="an-authority-of-nsqadmin-near-the-file",
        ),
        pytest.param('"h3"', '"h3-"', "'h3-' is no host name", id="no-name-of-a-host"),
    ],
)
def test_certificates_that_no_host_could_use(tmp_path: Path, old: str, new: str, says: str) -> None:
    text = SECURE if "h3" in old else LAB
    with pytest.raises(UsageError, match=says):
        read(tmp_path, text.replace(old, new))


def test_secure_is_for_several_hosts(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text("[deployment]\nsecure = true\n[[broker]]\n")
    with pytest.raises(
        UsageError, match=r"secure of \[deployment\] is for a file with \[\[host\]\]"
    ):
        read_plan(file)
