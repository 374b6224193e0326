"""JSON as Go's encoding/json writes it, for those who cut nsqd's answers with grep."""

import json
from typing import Any

_ESCAPED = str.maketrans({each: f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"})


def dumps(document: Any) -> str:
    """No spaces, letters as they are, and what HTML could take for its own escaped."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPED)
