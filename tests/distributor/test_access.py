"""Who may call, and the description of the API."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from distributor.http.audit import TOLD
from distributor.http.openapi import document
from distributor.http.routes import PREFIX, REPORTS, ROUTES, WATCH
from srtm.http.callers import Role
from tests.support.distributors import DistributorProcess, Starter, srtm
from tests.support.servers import http

TOKEN = "a" * 32


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


def test_without_the_token_nothing_but_health(
    start: Starter, tmp_path: Path, token_file: Path
) -> None:
    running = start(tmp_path / "s.db", f"--token-file={token_file}", token=TOKEN)
    running.wait_leading()
    running.topic()
    stranger = DistributorProcess(running.process, running.address)
    wrong = DistributorProcess(running.process, running.address, "b" * 32)
    for each in (stranger, wrong):
        status, refused = each.call("GET", "/topics")
        assert (status, list(refused)) == (401, ["error"])
        assert each.call("PUT", "/topics/u", {"rate": 1.0, "burst": 1.0})[0] == 401
        assert each.call("GET", "/topics/t/watch?id=p")[0] == 401
    assert http(running.address, "/metrics")[0] == 401
    assert len(running.ok("GET", "/topics")["topics"]) == 1
    assert TOKEN not in running.process.text()
    assert TOKEN not in Path(f"/proc/{running.process.popen.pid}/cmdline").read_text()
    refused_command = running.srtm("broker", "list")
    assert refused_command.returncode == 2
    assert "--distributor-token-file" in refused_command.stderr
    good = running.srtm("broker", "list", "--json", "--distributor-token-file", str(token_file))
    assert (good.returncode, good.stderr) == (0, "")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param(["--http-address=0.0.0.0:0"], "is not a number from 1", id="port-0"),
        pytest.param(["--http-address=0.0.0.0:4180"], "give a token-file", id="open-to-others"),
        pytest.param(["--token-file=/no/token"], "No such file", id="no-token-file"),
        pytest.param(["--lease-duration=10"], "'10' is not a duration", id="a-bare-number"),
        pytest.param(["--lease-duration=1ms"], "greater than or equal to 1", id="a-short-lease"),
        pytest.param(["--store=mysql://x/y"], "postgresql://HOST/NAME", id="another-database"),
    ],
)
def test_bad_flags_are_one_line(tmp_path: Path, flags: list[str], said: str) -> None:
    done = srtm("distributor", f"--store={tmp_path / 's.db'}", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("srtm: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_address_in_use_is_exit_3(start: Starter, tmp_path: Path) -> None:
    running = start()
    running.wait_leading()
    done = srtm("distributor", f"--store={tmp_path / 'x'}", f"--http-address={running.address}")
    assert done.returncode == 3
    assert f"--http-address {running.address} is in use by another process" in done.stderr


# --- OpenAPI and metrics --------------------------------------------------------------------------


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            yield from references(value)
    elif isinstance(node, list):
        for each in node:
            yield from references(each)


def test_openapi_describes_every_route_and_every_reference_is_there() -> None:
    described = document()
    assert described["openapi"].startswith("3.1.")
    operations = {
        (method.upper(), path) for path, its in described["paths"].items() for method in its
    }
    expected = {(route.method, PREFIX + route.path) for route in ROUTES}
    expected |= {("GET", PREFIX + WATCH), ("POST", PREFIX + WATCH), ("GET", PREFIX + REPORTS)}
    expected |= {("GET", path) for path in ("/v1/health", "/v1/openapi.json", "/metrics")}
    assert operations == expected
    schemas = described["components"]["schemas"]
    for reference in references(described):
        assert reference.removeprefix("#/components/schemas/") in schemas, reference
    for path, its in described["paths"].items():
        for method, operation in its.items():
            named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))
            assert operation["summary"]
            assert ("101" if path == PREFIX + REPORTS else "200") in operation["responses"]
            assert "503" in operation["responses"]
            is_open = path == "/v1/health"
            assert ("401" in operation["responses"]) is not is_open
            assert operation.get("x-role") in ((None,) if is_open else tuple(map(str, Role)))
            assert ("requestBody" in operation) <= (method in ("post", "put"))


def test_each_route_has_the_role_that_its_callers_have() -> None:
    """A new route is a new row here: what may be changed by whom is decided by a person."""
    agent = {
        ("POST", "/brokers"),
        ("POST", "/brokers/{name}/report"),
        ("GET", "/brokers/{name}/desired"),
        ("POST", "/topics/{topic}/publishers"),
    }
    for route in ROUTES:
        is_agent = (route.method, route.path) in agent
        other = Role.READ if route.method == "GET" else Role.OPERATOR
        assert route.role is (Role.AGENT if is_agent else other), route.path
        of_broker = is_agent and route.path.startswith("/brokers")
        assert (route.broker is not None) is of_broker, route.path
        assert route.body is None or route.body in TOLD or not route.is_change, route.path


def test_the_service_answers_as_described(start: Starter) -> None:
    """Each GET has the fields of its schema, and the served document is the generated one."""
    running = start()
    running.wait_leading()
    running.broker("b1")
    running.topic()
    running.publishers(2)
    running.place()
    running.ok("POST", "/topics/t/fitting", {})
    described = running.ok("GET", "/openapi.json")
    assert described == document()
    names = {"name": "b1", "topic": "t", "id": "p0"}
    checked = 0
    for path, its in described["paths"].items():
        others = ("/metrics", "/v1/openapi.json", PREFIX + WATCH, PREFIX + REPORTS)
        if "get" not in its or path in others:
            continue
        answer = running.ok("GET", path.format(**names).removeprefix(PREFIX))
        content = its["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        schema = described["components"]["schemas"][content["$ref"].rpartition("/")[2]]
        assert set(schema.get("required", ())) <= set(answer) <= set(schema["properties"]), path
        checked += 1
    assert checked == 15


def test_metrics_are_prometheus_text(start: Starter) -> None:
    running = start()
    running.wait_leading()
    running.broker("b1", 500.0)
    running.topic()
    running.publishers(3)
    running.place()
    text = http(running.address, "/metrics")[1]
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert values["srtm_distributor_leading",] == 1
    assert values["srtm_distributor_publishers",] == 3
    assert values["srtm_distributor_placed_publishers",] == 3
    assert values["srtm_distributor_brokers", "up"] == 1
    assert values["srtm_distributor_broker_capacity", "b1"] == 500
    assert values["srtm_distributor_broker_allocated", "b1"] == 30
    assert values["srtm_distributor_commit_seconds_count",] >= 4
