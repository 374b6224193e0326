"""Times as other people write them: numbers of some unit since 1970, or ISO 8601."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

NS: Mapping[str, int] = MappingProxyType({"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1})
"""the units that a number may have"""
LAST_NS = 4_102_444_800 * 10**9
"""the year 2100; what a trace may hold ends there"""
NOT_A_TIME = -1
OUT_OF_RANGE = -2
_FROM_SECONDS = 10**8
"""1973: an earlier number is taken for no time since 1970 whose unit could be told"""

_NUMBER = r"^\s*(?P<whole>[0-9]{1,19})(?:\.(?P<part>[0-9]*))?\s*$"
_ISO = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
_LOCAL, _ZONED = _ISO + "$", _ISO + r"(Z|[+-][0-9]{2}:?[0-9]{2})$"
_DIGITS = 9


def unit_of(values: pa.Array) -> str | None:
    """The unit that numbers of today's size have, by their median: "" where they are no numbers,
    None where no unit is obvious."""
    if pa.types.is_timestamp(values.type):
        return ""
    if _is_text(values):
        numbers = values.filter(pc.match_substring_regex(values, _NUMBER))
        if len(numbers) * 2 <= len(values) - values.null_count:
            return ""
        numbers = pc.utf8_trim_whitespace(numbers).cast(pa.float64())
    else:
        numbers = values.cast(pa.float64(), safe=False)
    known = numbers.drop_null().to_numpy()
    known = known[np.isfinite(known)]
    if not known.size:
        return ""
    middle = float(np.median(known))
    for unit, factor in NS.items():
        least = _FROM_SECONDS * (NS["s"] // factor)
        if least <= middle <= LAST_NS // factor:
            return unit
    return None


def nanoseconds(values: pa.Array, unit: str) -> NDArray[np.int64]:
    """Times since 1970 in ns, or NOT_A_TIME, OUT_OF_RANGE. A text without a zone is taken as UTC.

    values: of text, integers, floats or timestamps; unit: of numbers
    """
    factor = NS.get(unit, 1)
    if pa.types.is_timestamp(values.type):
        return _whole(values.cast(pa.int64()), NS[values.type.unit])
    if pa.types.is_floating(values.type):
        return _floats(values, factor)
    if pa.types.is_integer(values.type):
        return _whole(values, factor)
    return _texts(values, factor if unit else None)


def _is_text(values: pa.Array) -> bool:
    return bool(pa.types.is_string(values.type) or pa.types.is_large_string(values.type))


def _whole(values: pa.Array, factor: int) -> NDArray[np.int64]:
    is_unsigned = pa.types.is_unsigned_integer(values.type)
    number = values.fill_null(0).to_numpy(zero_copy_only=False)
    number = number.astype(np.uint64 if is_unsigned else np.int64)
    good = (number >= 0) & (number <= LAST_NS // factor)
    found: NDArray[np.int64] = np.where(good, number, 0).astype(np.int64) * factor
    found[~good] = OUT_OF_RANGE
    found[values.is_null().to_numpy(zero_copy_only=False)] = NOT_A_TIME
    return found


def _floats(values: pa.Array, factor: int) -> NDArray[np.int64]:
    number = values.cast(pa.float64()).fill_null(float("nan")).to_numpy(zero_copy_only=False)
    is_number = np.isfinite(number)
    good = is_number & (number >= 0) & (number <= LAST_NS // factor)
    whole = np.floor(np.where(good, number, 0.0))
    part = np.rint((np.where(good, number, 0.0) - whole) * factor).astype(np.int64)
    found: NDArray[np.int64] = whole.astype(np.int64) * factor + part
    found[~good] = OUT_OF_RANGE
    found[~is_number] = NOT_A_TIME
    return found


def _texts(values: pa.Array, factor: int | None) -> NDArray[np.int64]:
    """factor: None: numbers are no times"""
    found = np.full(len(values), NOT_A_TIME, np.int64)
    left = values.is_valid().to_numpy(zero_copy_only=False).copy()
    if factor is not None:
        numbers = pc.extract_regex(values, _NUMBER)
        here = numbers.is_valid().to_numpy(zero_copy_only=False) & left
        if here.any():
            found[here] = _decimals(numbers.filter(pa.array(here)), factor)
            left &= ~here
    for pattern, zone in ((_LOCAL, None), (_ZONED, "UTC")):
        matches = pc.match_substring_regex(values, pattern).fill_null(False)
        here = matches.to_numpy(zero_copy_only=False) & left
        if not here.any():
            continue
        try:
            times = values.filter(pa.array(here)).cast(pa.timestamp("ns", zone))
        except pa.ArrowInvalid:  # a 13th month somewhere: one by one
            continue
        found[here] = _whole(times.cast(pa.int64()), 1)
        left &= ~here
    for at in np.flatnonzero(left).tolist():
        found[at] = _one(values[at].as_py(), factor)
    return found


def _decimals(numbers: pa.Array, factor: int) -> NDArray[np.int64]:
    """numbers: of `whole` and `part`, digits before and behind the point"""
    found = _whole(pc.struct_field(numbers, "whole").cast(pa.uint64()), factor)
    digits = pc.utf8_rpad(pc.struct_field(numbers, "part"), _DIGITS, "0")
    digits = pc.utf8_slice_codeunits(digits, 0, _DIGITS).cast(pa.int64())
    part = digits.to_numpy(zero_copy_only=False) * factor // 10**_DIGITS
    return np.where(found >= 0, found + part, found)


def _one(text: str, factor: int | None) -> int:
    """What the patterns do not know: signs, exponents, other forms of ISO 8601."""
    if factor is not None:
        try:
            number = Decimal(text.strip())
        except InvalidOperation:
            pass
        else:
            if not number.is_finite():
                return NOT_A_TIME
            return int(number * factor) if 0 <= number <= LAST_NS // factor else OUT_OF_RANGE
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return NOT_A_TIME
    if len(text.strip()) <= len("2024-01-01"):
        return NOT_A_TIME  # a day
    since = time.replace(tzinfo=time.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    ns = (since.days * 86_400 + since.seconds) * NS["s"] + since.microseconds * NS["us"]
    return ns if 0 <= ns <= LAST_NS else OUT_OF_RANGE
