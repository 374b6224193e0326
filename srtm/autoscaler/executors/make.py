"""The executor of a file."""

from pathlib import Path

from srtm.autoscaler.executors.executor import Executor
from srtm.autoscaler.executors.local import Local
from srtm.consumer.file import ExecutorTable


def make_executor(table: ExecutorTable, file: Path, group: str) -> Executor:
    """group: by which its consumers are told from those of others. Raises SrtmError."""
    if table.kind == "kubernetes":
        from srtm.autoscaler.executors.kubernetes import Kubernetes  # an extra

        return Kubernetes(table, file)
    if table.kind == "keda":
        from srtm.autoscaler.executors.keda import Keda  # an extra

        return Keda(table, file)
    return Local(table, file, group)
