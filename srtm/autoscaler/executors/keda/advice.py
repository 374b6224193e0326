"""What the HorizontalPodAutoscaler, which KEDA makes, would do with a number of replicas. Pure."""

from typing import Final

from srtm.autoscaler.policies.hpa import DOWN_WINDOW_SECONDS, TOLERANCE, desired_replicas

PATIENCE_SECONDS: Final = 60.0
"""An HPA looks every 15 s, a pod ends within its grace."""


def swallowed(there: int, wanted: int) -> str:
    """Why `wanted` would never come, and the remedy; "" where it would."""
    if wanted == there or not there or desired_replicas(wanted, 1.0, there) != there:
        return ""
    return (
        f"{there} -> {wanted} replicas is within the HPA's tolerance of {TOLERANCE:.0%} and is "
        "dropped: set tolerance in behavior (Kubernetes 1.33 and later), or scale by "
        'kind = "kubernetes"'
    )


def waited(there: int, wanted: int, seconds: float) -> str:
    """Why `wanted` has not come for a while, and what to look at; "" where it has come, or may
    still."""
    if wanted == there or seconds < PATIENCE_SECONDS:
        return ""
    if wanted < there:
        return (
            f"{wanted} replicas are wanted for {seconds:.0f} s and {there} are there: the HPA "
            f"waits for its stabilizationWindowSeconds of scaleDown ({DOWN_WINDOW_SECONDS:g} s "
            "by default), or minReplicaCount is more"
        )
    return (
        f"{wanted} replicas are wanted for {seconds:.0f} s and {there} are there: see "
        "maxReplicaCount, and why pods do not start"
    )
