"""What `--admission-log` costs."""

from collections.abc import Sequence
from typing import Any

from benchmarks.gateway.recording import measure
from benchmarks.harness.report import Report
from benchmarks.harness.session import Session
from srtm.audit.folder import read_sessions


def run(session: Session) -> Report:
    folder = session.folder / "log"

    def logged(topics: Sequence[str]) -> dict[str, Any]:
        """What was measured did log."""
        return {
            "logged_messages": {
                topic: sum(each.messages for each in read_sessions([folder], topic))
                for topic in topics
            },
            "log_bytes": sum(file.stat().st_size for file in folder.iterdir()),
        }

    return measure(session, [f"--admission-log={folder}"], logged)
