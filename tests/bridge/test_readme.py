"""srtm/bridge/README.md says what the code does."""

from pathlib import Path

import pytest
from pydantic import BaseModel

import srtm.bridge
from srtm.bridge.file import BridgeTable, KafkaTable, Route
from srtm.text.duration import parse_duration

README = (Path(srtm.bridge.__file__).parent / "README.md").read_text()


def rows(*titles: str) -> dict[str, str]:
    """The first two cells of the tables that follow these titles."""
    found: dict[str, str] = {}
    for title in titles:
        table = README.split(title + "\n", 1)[1].lstrip("\n").split("\n\n")[0]
        for line in table.splitlines()[2:]:
            cells = [each.strip() for each in line.strip("|").split("|")]
            for name in cells[0].strip("`").split("`, `"):
                found[name] = cells[1].strip("`")
    return found


@pytest.mark.parametrize(
    ("table", "titles"),
    [
        (BridgeTable, ["`[bridge]`"]),
        (KafkaTable, ["`[kafka]`"]),
        (Route, ["`[[route]]`, both ways", "`[[route]]` from NSQ", "`[[route]]` from Kafka"]),
    ],
)
def test_each_key_is_there_with_its_default(table: type[BaseModel], titles: list[str]) -> None:
    told = rows(*titles)
    fields = {field.alias or name: field for name, field in table.model_fields.items()}
    assert set(told) == set(fields)
    for name, field in fields.items():
        said, default = told[name], field.default
        if isinstance(default, bool):
            assert said == str(default).lower(), name
        elif isinstance(default, float) and default:
            assert parse_duration(said) == default, name
        elif isinstance(default, int) and default:
            scale = {"MiB": 1 << 20, "GiB": 1 << 30}
            number, _, unit = said.partition(" ")
            assert int(number) * scale.get(unit, 1) == default, name
        elif isinstance(default, str) and default:
            assert said.strip('"') == default, name
