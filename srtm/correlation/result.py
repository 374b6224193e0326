"""What a run of the jobs leaves: `groups.json` for people and services, Parquet for programs.

    {"topics": [{"topic", "publishers", "groups": [{"name", "publishers": [...], "lift", "q",
     "coincidences"}], "ungrouped"}]}

It is read without Spark.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from srtm.host.files import MOST_ROWS_BYTES, read_file
from srtm.text.errors import UsageError, one_line

JSON = "groups.json"
NAMES = (JSON, "groups.parquet", "windows.parquet", "topics.parquet", "run.json")
"""All files that a folder of results may hold."""


class Group(BaseModel):
    """publishers: ids, sorted; lift: coincidences over those expected by chance, q: the false
    discovery rate at which its weakest pair is still found, coincidences: instants in common, of
    its median pair."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    name: str
    publishers: tuple[str, ...]
    lift: float
    q: float
    coincidences: int


class GroupedTopic(BaseModel):
    """publishers: how many came with it; ungrouped: how many of them are in no group."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    topic: str
    publishers: int
    groups: tuple[Group, ...]
    ungrouped: int


class Result(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    topics: tuple[GroupedTopic, ...]

    def only(self, topic: str | None) -> "Result":
        """The result of that topic alone; None: of all. Raises UsageError where it is not there."""
        if topic is None:
            return self
        found = tuple(each for each in self.topics if each.topic == topic)
        if not found:
            raise UsageError(f"--topic {topic}: not in this result")
        return Result(topics=found)


def read_result(folder: Path) -> Result:
    """Raises UsageError where there is none, or what is there was not written by a run."""
    path = folder / JSON
    try:
        return Result.model_validate_json(read_file(path, MOST_ROWS_BYTES))
    except FileNotFoundError:
        raise UsageError(
            f"{folder}: no result there ({JSON}); srtm correlate run --out writes one, whole"
        ) from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise one_line(error, str(path)) from None


def write_json(
    folder: Path, topics: Iterable[Mapping[str, Any]], groups: Iterator[Mapping[str, Any]]
) -> None:
    """Write `topics` and `groups`, both sorted by topic; a group is written as it comes, so that no
    topic is held in memory.

    topics: rows of topic, publishers, ungrouped; groups: rows of topic and of Group's fields.
    """
    path = folder / JSON
    with path.open("w", encoding="utf-8") as file:
        file.write('{"topics": [')
        group = next(groups, None)
        for number, topic in enumerate(topics):
            head = {"topic": topic["topic"], "publishers": topic["publishers"]}
            file.write(f"{',' if number else ''}\n{json.dumps(head)[:-1]}, " + '"groups": [')
            separator = ""
            while group is not None and group["topic"] == topic["topic"]:
                fields = {name: group[name] for name in Group.model_fields}
                file.write(f"{separator}\n  {json.dumps(fields)}")
                separator = ","
                group = next(groups, None)
            file.write(f'], "ungrouped": {topic["ungrouped"]}}}')
        if group is not None:
            raise ValueError(f"a group of {group['topic']!r}, which is not among the topics")
        file.write("\n]}\n")
        file.flush()
        os.fsync(file.fileno())
