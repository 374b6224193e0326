"""What `--trace-dir` costs, its own process included.

A file is written every second, sixty times as often as by default, so that each trial has some.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.gateway.recording import measure
from benchmarks.harness.report import Report
from benchmarks.harness.session import Session
from srtm.traces.names import whole_trace


def run(session: Session) -> Report:
    folder = session.folder / "trace"

    def traced(topics: Sequence[str]) -> dict[str, Any]:
        """What was measured did trace."""
        messages = dict.fromkeys(topics, 0)
        rows = 0
        for path in whole_trace(folder):
            table = pq.read_table(path)
            rows += table.num_rows
            sums = table.group_by("topic").aggregate([("messages", "sum")]).to_pylist()
            for each in sums:
                messages[each["topic"]] += each["messages_sum"]
        return {
            "traced_messages": messages,
            "rows": rows,
            "trace_bytes": sum(path.stat().st_size for path in whole_trace(folder)),
            "publishers": pc.count_distinct(
                pq.read_table(whole_trace(folder))["publisher"]
            ).as_py(),
        }

    return measure(session, [f"--trace-dir={folder}", "--trace-file-age=1s"], traced)
