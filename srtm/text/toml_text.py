"""TOML of what a host is told."""

import json
from collections.abc import Mapping
from typing import Any


def toml_text(tables: Mapping[str, Any]) -> str:
    """Tables and lists of tables, one deep. JSON's plain values are TOML's here."""

    def text(value: Any) -> str:
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{key} = {text(each)}" for key, each in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(text, value)) + "]"
        return json.dumps(value, ensure_ascii=False)

    def pairs(table: Mapping[str, Any]) -> str:
        rows = ((key, value) for key, value in table.items() if value is not None)
        return "".join(f"{key} = {text(value)}\n" for key, value in rows)

    plain = {name: each for name, each in tables.items() if not isinstance(each, Mapping | list)}
    parts = [pairs(plain)]
    for name, each in tables.items():
        if isinstance(each, Mapping):
            parts.append(f"\n[{name}]\n{pairs(each)}")
        elif isinstance(each, list):
            parts += [f"\n[[{name}]]\n{pairs(row)}" for row in each]
    return "".join(parts)
