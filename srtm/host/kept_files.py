"""How many files of a growing row are kept."""

from collections.abc import Sequence
from pathlib import Path


def make_room(files: Sequence[Path], kept_bytes: int, most_files: int) -> None:
    """Remove the first of `files`, which are the oldest, until the rest has at most `kept_bytes`
    and is at most so many. Raises OSError."""
    sizes = [_size(file) for file in files]
    total = sum(sizes)
    for number, (file, size) in enumerate(zip(files, sizes, strict=True)):
        if total <= kept_bytes and len(files) - number <= most_files:
            return
        file.unlink(missing_ok=True)
        total -= size


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0  # somebody else has just removed it
