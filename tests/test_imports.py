"""Imports point one way, between rooms (srtm.gateway, distributor.control) and between modules."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = ("srtm", "distributor", "tb_adaptor", "kernel", "benchmarks")

MODULES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for part in PARTS
    for file in (ROOT / part).rglob("*.py")
}


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


def imported(module: str) -> Iterator[str]:
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            names = (f"{node.module}.{each.name}" for each in node.names)
            yield from (name if name in MODULES else node.module for name in names)


@cache
def imports() -> dict[str, set[str]]:
    """By module: those of the product that it imports."""
    return {module: set(imported(module)) for module in MODULES}


def room(module: str) -> str:
    """A folder of a part, with the folders in it; what lies beside the folders is a room each."""
    return ".".join(module.split(".")[:2])


def itself(module: str) -> str:
    return module


@pytest.mark.parametrize("node", [room, itself])
def test_no_import_leads_back_to_where_it_began(node: Callable[[str], str]) -> None:
    graph: dict[str, set[str]] = {}
    for module, others in imports().items():
        needed = graph.setdefault(node(module), set())
        needed.update(node(other) for other in others if node(other) != node(module))
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
    assert len(order) >= 15


def test_the_gateway_and_the_placement_know_nothing_of_what_starts_them() -> None:
    above = {"srtm.cli", "srtm.deploy", "srtm.demo", "benchmarks.harness"}
    for module, others in imports().items():
        if room(module) in {"srtm.gateway", "srtm.client", "distributor.placement"}:
            assert not above & {room(other) for other in others}, module


SHARED = {
    "srtm.text": set(),
    "srtm.nsq": {"srtm.text"},
    "srtm.cli": {"srtm.text"},
    "srtm.host": {"srtm.text"},
    "srtm.http": {"srtm.host", "srtm.limits", "srtm.text"},
    "srtm.limits": {"srtm.nsq", "srtm.text"},
    "srtm.options": {"srtm.host", "srtm.http", "srtm.limits", "srtm.nsq", "srtm.text"},
}
"""by folder that all programs share: those that it may import from"""


@pytest.mark.parametrize("shared", SHARED)
def test_what_all_share_knows_nothing_of_its_users(shared: str) -> None:
    used = {
        room(other) for module in imports() if room(module) == shared for other in imports()[module]
    }
    assert used - {shared, "srtm"} <= SHARED[shared]


def test_beside_the_folders_of_srtm_is_only_its_entrance() -> None:
    assert {file.name for file in (ROOT / "srtm").glob("*.py")} == {"__init__.py", "__main__.py"}


def test_the_adaptor_knows_only_what_all_share() -> None:
    used = {
        other
        for module in imports()
        if module.startswith("tb_adaptor")
        for other in imports()[module]
    }
    assert {room(each) for each in used if not each.startswith("tb_adaptor")} <= set(SHARED)


def mentioned(wanted: str) -> set[str]:
    """Modules of the product whose text has it."""
    product = {each: file for each, file in MODULES.items() if not each.startswith("benchmarks")}
    return {module for module, file in product.items() if re.search(wanted, file.read_text())}


@pytest.mark.parametrize(
    ("wanted", "homes"),
    [
        pytest.param(
            r"^\s*(import|from) (h11|httpx|requests|urllib\.request|http\.client|tornado\.httpcl)",
            {"srtm.http.client", "srtm.http.connection"},
            id="http-client",
        ),
        pytest.param(
            r"\(RequestHandler\)|BaseHTTPRequestHandler", {"srtm.http.handler"}, id="http-handlers"
        ),
        pytest.param(
            r"prometheus_client|# TYPE|version=0\.0\.4", {"srtm.http.metrics"}, id="metrics"
        ),
        pytest.param(r"os\.replace\(|partial\.replace\(|mkstemp", {"srtm.host.atomic"}, id="files"),
        pytest.param(
            r"int\(port\)|int\(.*partition\(\":",
            # The second is compiled, and needs no errors.
            {"srtm.text.address", "srtm.gateway.upstream"},
            id="addresses",
        ),
        pytest.param(r"^from rich\.table|^from rich\.box", {"srtm.text.terminal"}, id="tables"),
    ],
)  # fmt: skip
def test_what_all_need_is_there_once(wanted: str, homes: set[str]) -> None:
    assert mentioned(f"(?m){wanted}") == homes
