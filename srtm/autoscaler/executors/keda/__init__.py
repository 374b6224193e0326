"""KEDA starts and ends consumers: it asks by gRPC how many are wanted."""

from srtm.autoscaler.executors.keda.executor import Keda

__all__ = ["Keda"]
