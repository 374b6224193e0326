"""What the API server says of a workload and its pods. Pure; its answers are not trusted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_HOPELESS = frozenset(
    {
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
"""why a container waits: nothing gets better by itself soon"""
_MOST_TEXT = 300


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale subresource. version: of the resource, without which a change could undo somebody
    else's"""

    replicas: int
    selector: str
    version: str


@dataclass(frozen=True, slots=True)
class Pod:
    """hopeless: why it will not start; "" where it may. waits: why it has not been placed"""

    name: str
    created: str = ""
    ready: bool = False
    terminating: bool = False
    hopeless: str = ""
    waits: str = ""


def scale_of(document: object) -> Scale:
    """Raises ValueError."""
    spec, status, about = (_part(document, key) for key in ("spec", "status", "metadata"))
    replicas = spec.get("replicas", 0)
    selector, version = status.get("selector"), about.get("resourceVersion")
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 0 <= replicas < 100_000:
        raise ValueError(f"replicas is {str(replicas)[:40]!r}")
    if not isinstance(selector, str) or not selector or not isinstance(version, str):
        raise ValueError("it has no selector, or no resourceVersion")
    return Scale(replicas, selector, version)


def pods_of(document: object) -> tuple[Pod, ...]:
    """Raises ValueError. Those that have ended (Succeeded, Failed) are left out."""
    items = document.get("items") if isinstance(document, dict) else None
    if items is None and isinstance(document, dict):
        return ()
    if not isinstance(items, list):
        raise ValueError("it is no list of pods")
    return tuple(
        _pod(each)
        for each in items
        if _part(each, "status").get("phase") not in ("Succeeded", "Failed")
    )


def _pod(document: object) -> Pod:
    about, status = _part(document, "metadata"), _part(document, "status")
    name = about.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= 253:
        raise ValueError("a pod has no name")
    conditions = {str(each.get("type")): each for each in _parts(status, "conditions")}
    placed = conditions.get("PodScheduled", {})
    waits = ""
    if placed.get("status") == "False":
        waits = _text(placed)
    return Pod(
        name=name,
        created=str(about.get("creationTimestamp") or "")[:40],
        ready=conditions.get("Ready", {}).get("status") == "True",
        terminating=bool(about.get("deletionTimestamp")),
        hopeless=_hopeless(status),
        waits=waits,
    )


def _hopeless(status: Mapping[str, Any]) -> str:
    for key in ("initContainerStatuses", "containerStatuses"):
        for each in _parts(status, key):
            waiting = _part(_part(each, "state"), "waiting")
            if waiting.get("reason") in _HOPELESS:
                return _text(waiting)
    return ""


def refusal_of(document: object) -> str:
    """Why a Deployment cannot make pods (a quota, an admission); "" where it can."""
    for each in _parts(_part(document, "status"), "conditions"):
        if each.get("type") == "ReplicaFailure" and each.get("status") == "True":
            return _text(each)
    return ""


def _text(found: Mapping[str, Any]) -> str:
    words = f"{found.get('reason') or ''}: {found.get('message') or ''}".strip(": ")
    return " ".join(words.split())[:_MOST_TEXT]


def _part(document: object, key: str) -> Mapping[str, Any]:
    found = document.get(key) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def _parts(document: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    found = document.get(key)
    return (
        (each for each in found if isinstance(each, dict)) if isinstance(found, list) else iter(())
    )
