"""Testbeds of a test, taken down with it."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from srtm.testbed import Testbed, open_testbed
from srtm.text.address import free_addresses

Say = Callable[[str, str], None]


def quiet(host: str, line: str) -> None:
    pass


@contextmanager
def short_folder() -> Iterator[Path]:
    """For the paths of unix sockets; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="srtm-") as folder:
        yield Path(folder)


def lab(folder: Path, kind: str = "local", more: str = "", name: str = "lab") -> Path:
    """Two hosts with a broker each, the distributor on the second; a third has nothing."""
    free = iter(free_addresses(7))
    ports = [str(next(free)) for _ in range(7)]
    (folder / "rooms.csv").write_text("id,key,rate\np1,,10\np2,,20\n")
    hosts = "".join(f'[[host]]\nname = "h{n}"\nkind = "{kind}"\n' for n in (1, 2, 3))
    file = folder / f"{name}.toml"
    file.write_text(
        f'[deployment]\nname = "{name}"\ndata-path = "{folder}/d"\n{hosts}{more}\n'
        f'[lookupd]\ntcp-address = "{ports[0]}"\nhttp-address = "{ports[1]}"\n'
        f'[distributor]\nhost = "h2"\nhttp-address = "{ports[2]}"\n'
        f'[[broker]]\nname = "b1"\nhost = "h1"\ncapacity = 500\n'
        f'tcp-address = "{ports[3]}"\nhttp-address = "{ports[4]}"\n'
        f'[[broker]]\nname = "b2"\nhost = "h2"\ncapacity = 1000\n'
        f'tcp-address = "{ports[5]}"\nhttp-address = "{ports[6]}"\n'
        '[[load]]\nhost = "h3"\n'
        '[[topic]]\nname = "even"\nrate = 100\nburst = 10\n'
        '[[topic]]\nname = "placed"\nrate = 100\nburst = 10\npublishers = "rooms.csv"\n'
    )
    return file


@contextmanager
def up(file: Path, say: Say = quiet) -> Iterator[Testbed]:
    """Brought up, and purged in the end."""
    try:
        found = open_testbed(file)
        found.up(say)
        yield open_testbed(file)
    finally:
        open_testbed(file).down(quiet, purge=True)
