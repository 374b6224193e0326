"""How many generated cases a test tries: an eighth, or with LONG=yes all of them."""

import os

LONG = os.environ.get("LONG") == "yes"
_FEWEST = 20


def cases(most: int) -> int:
    return most if LONG else max(min(most, _FEWEST), most // 8)
