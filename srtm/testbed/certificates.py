"""The certificates of a testbed whose file says `secure = true`: an authority on this machine, and
one certificate for each host, which all of its programs show."""

import datetime
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from srtm.certs.names import Names
from srtm.deploy.certificates import NamedCertificate
from srtm.deploy.host_tables import HostTable
from srtm.host.certificates import PLAIN_TEXT, TlsFiles
from srtm.host.files import read_file
from srtm.testbed.host import Host
from srtm.text.errors import SrtmError

VALID_DAYS = 365
RENEW_DAYS = 30
"""a certificate that ends sooner is replaced when the testbed is brought up"""
_ON_HOST = {"ca.pem": 0o644, "host.pem": 0o644, "host.key": 0o600}
"""names in the host's own folder -> modes"""


def names_of(host: HostTable) -> Names:
    """What the others call it, and what it calls itself. Raises UsageError."""
    return Names.mixed(host.name, host.address, "localhost", "127.0.0.1", "::1")


def make(folder: Path, hosts: Iterable[HostTable], now: datetime.datetime) -> None:
    """Make the authority and the certificates that are missing, are for another address, or end
    soon. Raises SrtmError."""
    from srtm.certs import authority  # a tenth of a second, and most testbeds have none

    if not authority.ca_file(folder).exists():
        authority.create(folder, now)
    for host in hosts:
        names = names_of(host)
        if not _is_good(folder / f"{host.name}.pem", names, now):
            authority.issue(folder, host.name, names, VALID_DAYS, now, replace=True)


def named(folder: Path, hosts: Iterable[HostTable]) -> Iterator[NamedCertificate]:
    """Those that are made."""
    for host in hosts:
        cert, key = folder / f"{host.name}.pem", folder / f"{host.name}.key"
        if cert.exists():
            files = TlsFiles(str(cert), str(key))
            where, root = f"certificate of host {host.name}", str(folder / "ca.pem")
            yield NamedCertificate(host.name, where, "", files, root, is_ours=True)


def put(folder: Path, host: Host, own: str) -> None:
    """Bring a host its certificate. own: its own folder, where programs find it, and take it anew
    when it changes. Raises SrtmError."""
    for name, mode in _ON_HOST.items():
        file = folder / name.replace("host.", f"{host.table.name}.")
        try:
            content = read_file(file)
        except OSError as error:
            raise SrtmError(f"{file}: {error.strerror}") from None
        host.put(f"{own}/{name}", content, mode)


def refuse_near_files(tables: Mapping[str, Any]) -> None:
    """Raises ValueError for a certificate that lies beside the testbed's file, where its host has
    nothing."""
    others = (tables["distributor"] or {}, tables["elsewhere"], tables.get("nsqadmin", {}))
    for table in (*tables["broker"], *others):
        for key, value in table.items():
            is_file = "tls-" in key and key.endswith(("-cert", "-key", "-file"))
            if is_file and value not in ("", PLAIN_TEXT) and not str(value).startswith("/"):
                raise ValueError(
                    f"{key} {value}: write its absolute path on the host, or secure = true in "
                    "[deployment], which brings certificates there"
                )


def secured(tables: Mapping[str, Any], own: PurePosixPath) -> dict[str, Any]:
    """The tables of a host's part, with TLS where they do not set it themselves. own: the host's
    own folder."""
    door = {
        "tls-cert": str(own / "host.pem"),
        "tls-key": str(own / "host.key"),
        "tls-root-ca-file": str(own / "ca.pem"),
    }
    reach = {"distributor-tls-root-ca-file": str(own / "ca.pem")}
    read = {"http-client-tls-root-ca-file": str(own / "ca.pem")}
    made = dict(tables)
    made["broker"] = [door | {"tls-required": "tcp-https"} | each for each in tables["broker"]]
    if "nsqadmin" in tables:
        made["nsqadmin"] = read | tables["nsqadmin"]
    if tables["distributor"]:
        given = {key: value for key, value in tables["distributor"].items() if value != ""}
        made["distributor"] = door | reach | given
    elif "distributor-address" in tables["elsewhere"]:
        made["elsewhere"] = reach | tables["elsewhere"]
    return made


def _is_good(path: Path, names: Names, now: datetime.datetime) -> bool:
    from srtm.certs.certificate import read_shown

    if not path.exists() or not path.with_suffix(".key").exists():
        return False
    found = read_shown(path, now)[0]
    is_for = {*(f"DNS:{each}" for each in names.dns), *(f"IP:{each}" for each in names.ip)}
    return found.days_left > RENEW_DAYS and is_for <= set(found.names)
