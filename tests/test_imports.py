"""Imports point one way, between rooms (srtm.gateway, distributor.control) and between modules."""

import ast
import re
from collections.abc import Callable, Iterator
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


def imported(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            names = (f"{node.module}.{each.name}" for each in node.names)
            yield from (name if name in MODULES else node.module for name in names)


IMPORTS = {module: set(imported(module)) for module in MODULES}


def room(module: str) -> str:
    """A folder of a part, with the folders in it; what lies beside the folders is a room each."""
    return ".".join(module.split(".")[:2])


def itself(module: str) -> str:
    return module


@pytest.mark.parametrize("node", [room, itself])
def test_no_import_leads_back_to_where_it_began(node: Callable[[str], str]) -> None:
    graph: dict[str, set[str]] = {}
    for module, others in IMPORTS.items():
        needed = graph.setdefault(node(module), set())
        needed.update(node(other) for other in others if node(other) != node(module))
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
    assert len(order) >= 15


def test_the_gateway_and_the_placement_know_nothing_of_what_starts_them() -> None:
    above = {"srtm.cli", "srtm.deploy", "srtm.demo", "benchmarks.harness"}
    for module, others in IMPORTS.items():
        if room(module) in {"srtm.gateway", "srtm.client", "distributor.placement"}:
            assert not above & {room(other) for other in others}, module


def mentioned(wanted: str) -> set[str]:
    """Modules of the product whose text has it."""
    product = {each: file for each, file in MODULES.items() if not each.startswith("benchmarks")}
    return {module for module, file in product.items() if re.search(wanted, file.read_text())}


@pytest.mark.parametrize(
    ("wanted", "homes"),
    [
        pytest.param(
            r"import (httpx|requests|urllib\.request)|http\.client|tornado\.httpclient",
            {"srtm.http_client"},
            id="http-client",
        ),
        pytest.param(
            r"\(RequestHandler\)|BaseHTTPRequestHandler", {"srtm.api_handler"}, id="http-handlers"
        ),
        pytest.param(r"os\.replace\(|partial\.replace\(|mkstemp", {"srtm.atomic"}, id="files"),
        pytest.param(
            r"int\(port\)|int\(.*partition\(\":",
            {"srtm.address", "srtm.gateway.upstream"},  # a compiled module that needs no errors
            id="addresses",
        ),
        pytest.param(r"^from rich\.table|^from rich\.box", {"srtm.terminal"}, id="tables"),
    ],
)  # fmt: skip
def test_what_all_need_is_there_once(wanted: str, homes: set[str]) -> None:
    assert mentioned(f"(?m){wanted}") == homes
