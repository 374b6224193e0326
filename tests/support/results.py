"""Results of benchmarks as `python -m benchmarks run` writes them."""

import json
from pathlib import Path
from typing import Any


def bar(name: str, value: float | None, at_most: float, met: bool | None, why: str = "") -> Any:
    low, high = (None, None) if value is None else (value * 0.9, value * 1.2)
    return {"name": name, "value": value, "low": low, "high": high, "at_most": at_most,
            "met": met, "why": why}  # fmt: skip


def result(name: str, *bars: Any, **fields: Any) -> dict[str, Any]:
    return {
        "benchmark": name,
        "shows": f"what {name} shows",
        "method": "One thing in turns with another.\n\nMore of it.",
        "started_at": "2026-11-25T03:00:00+00:00",
        "seconds": 44.5,
        "quick": True,
        "settings": {"rounds": 3},
        "machine": {
            "cpu": "AMD EPYC",
            "cores": 2,
            "memory_bytes": 25 << 30,
            "kernel": "6.18",
            "python": "3.11.2",
            "nsqd": "nsqd v1.3.0",
            "compiled": {},
            "load_average": {"start": [1.5, 1, 1], "end": [2.25, 1, 1]},
        },
        "commit": {"id": "0123456789abcdef", "dirty": True},
        "figures": {"waits": [0.1] * 9},
        "tables": [
            {
                "title": "waits",
                "columns": ["policy", "p50, ms", "p99, ms"],
                "rows": [["srtm", "0.4", "1.9"], ["", "", ""], ["lb", "0.8", "52"]],
            }
        ],
        "bars": list(bars),
        "notes": ["the machine was busy"],
    } | fields


def written(folder: Path, *documents: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for each in documents:
        (folder / f"{each['benchmark']}.json").write_text(json.dumps(each))
    return folder
