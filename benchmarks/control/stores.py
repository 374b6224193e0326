"""The kinds of stores that a distributor is measured with."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path

from benchmarks.harness.postgres import postgres
from srtm.text.address import free_addresses
from srtm.text.errors import UnavailableError


class Kind(StrEnum):
    """A kind of store."""

    SQLITE = "SQLite"
    POSTGRES = "PostgreSQL"


@contextmanager
def stores(folder: Path) -> Iterator[tuple[dict[Kind, str], list[str]]]:
    """What `--store` is for each kind, with an empty store of each that is there; and a note for
    one that is not."""
    with ExitStack() as up:
        found, notes = {Kind.SQLITE: str(folder / "store.db")}, []
        try:
            [address] = free_addresses(1)
            found[Kind.POSTGRES] = up.enter_context(postgres(address.port)).database()
        except UnavailableError as error:
            notes.append(f"not measured on {Kind.POSTGRES}: {error}")
        yield found, notes
