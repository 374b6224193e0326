"""A JSON pointer (RFC 6901) into a message's body: the key of its Kafka record. Pure."""

import json
from collections.abc import Callable


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


class NoKey(ValueError):
    """The body has none there; its text says why."""


def pointer(text: str) -> Callable[[bytes], bytes]:
    """A function from a body to its key. It raises NoKey. Raises ValueError for a bad pointer."""
    if not text.startswith("/"):
        raise ValueError(f"{text!r} is no JSON pointer; write /name, or /outer/inner")
    for bad in text.split("~")[1:]:
        if bad[:1] not in ("0", "1"):
            raise ValueError(f"{text!r} is no JSON pointer: ~ is written ~0, and / in a name ~1")
    tokens = [each.replace("~1", "/").replace("~0", "~") for each in text[1:].split("/")]

    def key_of(body: bytes) -> bytes:
        try:
            # A number is its own text: 7.50 is no 7.5 to who looks for its partition, and there is
            # none too big.
            found = json.loads(body, parse_float=str, parse_int=str, parse_constant=_refuse)
        except (ValueError, RecursionError):
            raise NoKey(f"the body is no JSON, and its key is at {text}") from None
        for token in tokens:
            if isinstance(found, dict) and token in found:
                found = found[token]
            elif isinstance(found, list) and token.isdecimal() and int(token) < len(found):
                found = found[int(token)]
            else:
                raise NoKey(f"the body has no {text}")
        if isinstance(found, str):
            return found.encode(errors="surrogatepass")
        if found is None or isinstance(found, dict | list):
            raise NoKey(f"{text} of the body is neither a text nor a number")
        return json.dumps(found).encode()

    return key_of
