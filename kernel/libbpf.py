"""The part of libbpf that is used here, by ctypes. Every call raises OSError as the kernel says."""

import ctypes
import os
from typing import Any

from kernel.errors import SourceUnavailable

LIBRARY = "libbpf.so.1"

_pointer = ctypes.c_void_p
_size = ctypes.c_size_t
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "libbpf_set_print": (_pointer, [_pointer]),
    "bpf_object__open_file": (_pointer, [ctypes.c_char_p, _pointer]),
    "bpf_object__find_map_by_name": (_pointer, [_pointer, ctypes.c_char_p]),
    "bpf_object__find_program_by_name": (_pointer, [_pointer, ctypes.c_char_p]),
    "bpf_object__load": (ctypes.c_int, [_pointer]),
    "bpf_object__close": (None, [_pointer]),
    "bpf_map__set_max_entries": (ctypes.c_int, [_pointer, ctypes.c_uint32]),
    "bpf_map__set_initial_value": (ctypes.c_int, [_pointer, _pointer, _size]),
    "bpf_map__value_size": (ctypes.c_uint32, [_pointer]),
    "bpf_map__fd": (ctypes.c_int, [_pointer]),
    "bpf_program__fd": (ctypes.c_int, [_pointer]),
    "bpf_program__attach_cgroup": (_pointer, [_pointer, ctypes.c_int]),
    "bpf_link__fd": (ctypes.c_int, [_pointer]),
    "bpf_link__destroy": (ctypes.c_int, [_pointer]),
}


def library() -> Any:
    """libbpf, its functions typed and silent. Raises SourceUnavailable when it is not installed."""
    try:
        loaded = ctypes.CDLL(LIBRARY, use_errno=True)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise SourceUnavailable(
            f"{LIBRARY} 1.0 or newer is not there: install libbpf1 (Debian, Ubuntu) or libbpf"
            f" ({error})"
        ) from None
    loaded.libbpf_set_print(None)  # what fails is told by our own errors, in one line
    return loaded


def checked(result: int | None, step: str) -> int:
    """A pointer or a count of libbpf's. NULL and negative numbers raise OSError for `step`."""
    if result is None:
        code = ctypes.get_errno()
    elif result < 0:
        code = -result
    else:
        return result
    raise OSError(code, os.strerror(code), step)
