"""Tables in the pages that are made from the code: `make docs` writes them anew."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from benchmarks.catalogue import BENCHMARKS
from benchmarks.control.shards.needed import CORE, GATEWAYS, most_seconds, needed
from benchmarks.kept import RESULTS
from distributor.http import metrics as distributor
from srtm.autoscaler.live import figures as autoscaler
from srtm.bridge import http as bridge
from srtm.consumer import status as consumer
from srtm.deploy import host_tables, tables
from srtm.deploy.nsqadmin import NsqadminTable
from srtm.gateway.http import metrics as gateway
from srtm.gateway.options import GatewayOptions
from srtm.http.metrics import Row
from srtm.journey import metrics as journey
from srtm.report.result import number, read
from srtm.text.duration import format_duration
from srtm.text.errors import EXITS

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "gateway": gateway,
    "distributor": distributor,
    "autoscaler": autoscaler,
    "consumer": consumer,
    "bridge": bridge,
    "journey": journey,
}
"""modules with the tables of what a program's /metrics shows"""
_SECTION = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.S)


def pages() -> list[Path]:
    """Every page of the repository."""
    own = [file for file in ROOT.glob("*.md") if file.name != "CHANGELOG.md"]
    parts = ("srtm", "distributor", "tb_adaptor", "kernel", "benchmarks")
    return sorted(own + [file for part in parts for file in (ROOT / part).rglob("*.md")])


def renewed(text: str) -> str:
    """A page with its generated sections as the code has them."""
    return _SECTION.sub(lambda found: found[1] + MADE[found[2]]() + found[3], text)


def _table(*head: str, rows: Iterator[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def metrics_of(program: ModuleType) -> list[Row[Any]]:
    """Rows of its tables, in their order."""
    tables = (each for name, each in vars(program).items() if name.endswith("METRICS"))
    return [row for table in tables for row in table]


def _metrics(program: ModuleType) -> Callable[[], str]:
    rows = [(f"`{row.name}`", row.kind, row.help) for row in metrics_of(program)]
    return lambda: _table("metric", "kind", "", rows=iter(rows))


def _exits() -> str:
    return _table("code", "", rows=((str(int(code)), text) for code, text in EXITS.items()))


def _keys() -> str:
    rooms: dict[str, type[BaseModel]] = {
        "[deployment]": tables.DeploymentTable,
        "[lookupd]": tables.LookupdTable,
        "[nsqadmin]": NsqadminTable,
        "[distributor]": tables.DistributorTable,
        "[bridge]": tables.BridgeTable,
        "[journeys]": tables.MeasuredTable,
        "[[broker]]": tables.BrokerTable,
        "[[topic]]": tables.TopicTable,
        "[[host]]": host_tables.HostTable,
        "[[load]]": host_tables.LoadTable,
        "[[subscriber]]": host_tables.SubscriberTable,
        "[elsewhere]": host_tables.ElsewhereTable,
    }

    def rows(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
        fields = {**model.model_fields}
        if fields.pop("gateway", None):
            options = GatewayOptions.model_fields
            fields |= {name: options[name] for name in tables.gateway_keys().values()}
        if model is tables.TopicTable:
            del fields["contract_burst"]  # of a broker's share, which `srtm up` works out
        for name, field in fields.items():
            key = "name" if (model, name) == (tables.TopicTable, "topic") else name
            yield f"`{key.replace('_', '-')}`", _default(field), field.description or ""

    return "\n".join(
        f"`{name}`: {(model.__doc__ or '').partition(': ')[2].strip()}\n\n"
        + _table("key", "default", "", rows=rows(model))
        for name, model in rooms.items()
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=False)
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"`{format_duration(value) if isinstance(value, float) else value}`"


def _verdicts() -> str:
    """Of each benchmark's kept run."""

    def rows() -> Iterator[tuple[str, ...]]:
        for name, entry in BENCHMARKS.items():
            file = RESULTS / f"{name}.json"
            if not file.exists():
                yield f"`{name}`", entry.shows, "", "", "", "not kept"
                continue
            found = read(file)
            counts = (str(found.count(met)) for met in (True, False, None))
            when = found.started_at[:10] + (", changed tree" if found.commit.dirty else "")
            yield f"`{name}`", entry.shows, *counts, when

    return _table("benchmark", "shows", "met", "missed", "undecided", "run", rows=rows())


def _hand_over() -> str:
    """Of the kept run of real consumers on a real Kafka."""
    found = read(RESULTS / "hand-over.json")
    _, *head = found.tables[0].columns
    machine = f"{found.machine.cores} cores, {found.machine.cpu}; {found.started_at[:10]}"
    return f"In ms, on {machine}:\n\n" + _table("", *head, rows=iter(found.tables[0].rows))


def _shards_needed() -> str:
    """By what reports cost in the kept run of `control`."""
    control = read(RESULTS / "control.json")
    rows = (
        (
            each.name,
            number(1e3 * each.report_seconds),
            f"{each.gateways:,}",
            str(each.groups),
            str(each.hash_least),
            str(each.hash_most),
        )
        for each in needed(control)
    )
    head = ("report", "CPU ms", "gateways of one leader", "groups", "hash, at least", "at most")
    settings = f"{GATEWAYS:,} gateways with {control.settings['topics']} topics each"
    carried = f"once a report costs at most {number(1e3 * most_seconds(2))} ms"
    return (
        f"By the kept run of `control` ({control.started_at[:10]}), at one report a second and\n"
        f"{CORE:.0%} of a core. The last columns are leaders, and so cores, for {settings}.\n\n"
        f"{_table(*head, rows=rows)}\nTwo cores carry as many, as two groups, {carried}.\n"
    )


def _shards_simulated() -> str:
    """Of the kept run of `shards`."""
    found = read(RESULTS / "shards.json")
    left_out = ("placements", "most retries", "fenced")
    shown = [n for n, name in enumerate(found.tables[0].columns) if name not in left_out]
    head = [found.tables[0].columns[n] for n in shown]
    rows = (tuple(row[n] for n in shown) for row in found.tables[0].full_rows)
    return _table(*head, rows=rows)


MADE: dict[str, Callable[[], str]] = {
    **{f"{name}-metrics": _metrics(program) for name, program in PROGRAMS.items()},
    "exit-codes": _exits,
    "deployment-keys": _keys,
    "verdicts": _verdicts,
    "hand-over": _hand_over,
    "shards-needed": _shards_needed,
    "shards-simulated": _shards_simulated,
}


if __name__ == "__main__":
    for page in pages():
        page.write_text(renewed(page.read_text()))
