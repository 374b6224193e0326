"""Which handler serves which path, by the rules of nsqd's own router (httprouter 1.3.0).

A path that differs from one that is there by its slashes, dots or case is answered with a redirect
to that one; a path that is there for other methods only, with 405 and these.
"""

import re
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote_to_bytes

ADMIN_PATHS = tuple(
    f"/{noun}/{verb}"
    for noun in ("topic", "channel")
    for verb in ("create", "delete", "empty", "pause", "unpause")
)
PATHS = {
    "GET": ("/ping", "/info", "/stats", "/metrics", "/arrivals"),
    "POST": ("/pub", "/mpub", *ADMIN_PATHS),
}
_METHODS = {path: method for method, paths in PATHS.items() for path in paths}
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_ABSOLUTE = re.compile(r"https?://[^/?]*", re.IGNORECASE)


class Answer(Enum):
    """What a target gets where no handler is found."""

    BAD = "the target cannot be read"
    MOVED = "elsewhere is where it is"
    OPTIONS = "elsewhere are the methods that it has"
    NOT_ALLOWED = "it has other methods: those of elsewhere"
    NOT_FOUND = "there is no such path"


@dataclass(frozen=True)
class Route:
    """The path of a handler, or else the answer."""

    path: str = ""
    answer: Answer | None = None
    elsewhere: str = ""


def route(method: str, target: str) -> Route:
    """The route of a request line, whose target has its query."""
    target = _ABSOLUTE.sub("", target, count=1) or "/"
    raw, mark, query = target.partition("?")
    if _BAD_ESCAPE.search(raw) or not raw.startswith(("/", "*")):
        return Route(answer=Answer.BAD)
    path = unquote_to_bytes(raw.encode("latin-1", "replace")).decode("latin-1")
    own = _METHODS.get(path)
    if own == method:
        return Route(path)
    near = _near(method, path)
    if near:
        return Route(answer=Answer.MOVED, elsewhere=near + mark + _ascii(query))
    if method == "OPTIONS" and path == "*":
        return Route(answer=Answer.OPTIONS)
    if own is not None:
        answer = Answer.OPTIONS if method == "OPTIONS" else Answer.NOT_ALLOWED
        return Route(answer=answer, elsewhere=", ".join(sorted((own, "OPTIONS"))))
    return Route(answer=Answer.NOT_FOUND)


def _near(method: str, path: str) -> str:
    """The method's path that is meant; "" where none is."""
    paths = PATHS.get(method, ())
    for found in (path.removesuffix("/"), clean(path).removesuffix("/").lower()):
        if found in paths:
            return found
    return ""


def clean(path: str) -> str:
    """The path without empty, "." and ".." elements (httprouter's CleanPath)."""
    elements: list[str] = []
    parts = path.split("/")
    for part in parts:
        if part == "..":
            del elements[-1:]
        elif part not in ("", "."):
            elements.append(part)
    slash = "/" if elements and parts[-1] in ("", ".") else ""
    return "/" + "/".join(elements) + slash


def _ascii(query: str) -> str:
    """Bytes of a header line that are no ASCII, as Go escapes them."""
    return "".join(each if each < "\x80" else f"%{ord(each):x}" for each in query)
