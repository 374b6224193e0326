"""What this machine remembers of a testbed: whose it is, and what was put on which host."""

import fcntl
import hashlib
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from srtm.deploy.host_tables import HostTable
from srtm.host.atomic import read_json, replacing, write_json
from srtm.host.files import read_file
from srtm.http.bearer import read_token
from srtm.testbed.host import Host
from srtm.testbed.inventory import OWN_FOLDER, Inventory
from srtm.text.errors import SrtmError, UnavailableError, UsageError, one_line


class SavedTestbed(BaseModel):
    """id: of file, name and this machine; digest: of the file and of those that it names; hosts: as
    they were brought up, so that they are found again after an edit."""

    model_config = ConfigDict(frozen=True)

    id: str
    file: str
    digest: str
    subnet: int
    hosts: tuple[HostTable, ...]


class Owner(BaseModel):
    """What lies on each host, and says whose data these are."""

    model_config = ConfigDict(frozen=True)

    id: str
    file: str
    machine: str


def identity(inventory: Inventory) -> str:
    """The id of a testbed: the same for the same file on the same machine, with the same name."""
    text = f"{socket.gethostname()}|{inventory.file}|{inventory.name}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest(inventory: Inventory) -> str:
    """Changes with every byte that a host gets."""
    found = hashlib.sha256(read_file(inventory.file))
    for part in inventory.parts():
        for name, file in sorted(part.files.items()):
            found.update(name.encode() + b"\0" + hashlib.sha256(read_file(file)).digest())
    return found.hexdigest()


def token(inventory: Inventory) -> bytes:
    """The distributor's token, made if the file names none; empty where none is needed. Raises
    SrtmError."""
    file = inventory.token_file
    if file is None:
        return b""
    given = inventory.plan.distributor and inventory.plan.distributor.token_file
    if not given and not file.exists():
        with replacing(file, mode=0o600) as opened:
            opened.write(secrets.token_hex(32).encode() + b"\n")
    return read_token(str(file), "token-file").encode() + b"\n"


def load(folder: Path) -> SavedTestbed | None:
    """Raises UsageError for a file that was tampered with."""
    document = read_json(folder / "state.json")
    try:
        return None if document is None else SavedTestbed.model_validate(document)
    except ValidationError as error:
        raise one_line(error, str(folder / "state.json")) from None


def save(folder: Path, state: SavedTestbed) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "state.json", state.model_dump(mode="json", by_alias=True))


def forget(folder: Path) -> None:
    (folder / "state.json").unlink(missing_ok=True)


def owner_file(host: Host) -> str:
    """Its path on the host."""
    return f"{host.table.data_path}/{OWN_FOLDER}/owner.json"


def owner_of(host: Host) -> Owner | None:
    """Whose data the host has. Raises UsageError for a file that was tampered with."""
    found = host.read(owner_file(host))
    if found is None:
        return None
    try:
        return Owner.model_validate_json(found)
    except ValidationError:
        raise UsageError(
            f"{owner_file(host)} does not say whose data these are: remove the folder, or choose "
            "another data-path"
        ) from None


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One command at a time changes a testbed. Raises UnavailableError where another one does,
    SrtmError where this user may not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SrtmError(
            f"{error.filename}: {error.strerror}: do it as the user whose testbed it is, or choose "
            "another data-path in [deployment]"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            raise UnavailableError(
                f"another srtm testbed command (pid {pid or 'unknown'}) changes the testbed in "
                f"{folder.parent}; wait for it to end"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
