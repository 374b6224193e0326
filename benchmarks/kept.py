"""Results that are kept in the repository, and the page that is made from them."""

import json
from pathlib import Path
from typing import Any

from benchmarks.catalogue import BENCHMARKS
from benchmarks.harness.report import number
from srtm.errors import UsageError

_HERE = Path(__file__).parent
RESULTS = _HERE / "results"
PAGE = _HERE / "RESULTS.md"
_KEPT = ("benchmark", "started_at", "seconds", "quick", "tables", "bars", "notes")
_MACHINE = ("cpu", "cores", "python", "load_average")


def keep(file: Path, folder: Path = RESULTS) -> Path:
    """Write what people read of a run's NAME.json into `folder`. Every figure stays out: they are
    megabytes. Raises UsageError where `file` is no result."""
    try:
        document = json.loads(file.read_text())
        kept = {key: document[key] for key in _KEPT}
        kept["machine"] = {key: document["machine"][key] for key in _MACHINE}
        kept["commit"] = document["commit"]["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file}: not a result of `python -m benchmarks run` ({error})") from None
    folder.mkdir(exist_ok=True)
    target = folder / f"{kept['benchmark']}.json"
    target.write_text(json.dumps(kept, indent=1) + "\n")
    return target


def page(folder: Path = RESULTS) -> str:
    """Markdown: all results, in the catalogue's order."""
    found = {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}
    parts = [
        "# Results\n\nMade from `results/` by `python -m benchmarks keep`; "
        "[README](README.md) says how they are measured.\n"
    ]
    for name, entry in BENCHMARKS.items():
        if name in found:
            parts.append(f"## {name}: {entry.shows}\n\n{_section(found[name])}")
    return "\n".join(parts)


def _section(result: dict[str, Any]) -> str:
    machine = result["machine"]
    load = machine["load_average"]
    quick = ", --quick" if result["quick"] else ""
    parts = [
        f"{result['started_at'][:10]}, {result['seconds']:,.0f} s{quick}, {machine['cores']} cores "
        f"({machine['cpu']}), load average {load['start'][0]:.1f} before and "
        f"{load['end'][0]:.1f} after, commit {(result['commit'] or 'unknown')[:7]}.\n"
    ]
    parts += [_table(each["title"], each["columns"], each["rows"]) for each in result["tables"]]
    if result["bars"]:
        parts.append(_table("", ["bar", "figure", "range", "limit", ""], _bars(result["bars"])))
    parts += [f"- {note}\n" for note in result["notes"]]
    return "\n".join(parts)


def _bars(bars: list[dict[str, Any]]) -> list[list[str]]:
    verdicts = {True: "met", False: "**missed**", None: "undecided"}
    return [
        [
            bar["name"],
            number(bar["value"]),
            f"{number(bar['low'])} .. {number(bar['high'])}",
            f">= {bar['at_least']:g}" if "at_least" in bar else f"<= {bar['at_most']:g}",
            verdicts[bar["met"]] + (f": {bar['why']}" if bar["why"] else ""),
        ]
        for bar in bars
    ]


def _table(title: str, columns: list[str], rows: list[list[str]]) -> str:
    """A row that is empty parts two groups on a terminal; here it is left out."""
    lines = [f"{title}\n"] if title else []
    lines += [_row(columns), "|" + "---|" * len(columns)]
    lines += [_row(row) for row in rows if any(cell.strip() for cell in row)]
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
