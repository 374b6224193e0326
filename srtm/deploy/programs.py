"""Where the NSQ programs are, and whether nsqd is the version that SRTM was tested with."""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from srtm.deploy.file import Plan
from srtm.host.python import module
from srtm.text.errors import UnavailableError, UsageError

TESTED_NSQ = "1.3"
_VERSION_TIMEOUT_SECONDS = 10.0
_REMEDY = (
    "run `make setup` in SRTM's source tree (it builds NSQ 1.3.0 with Go), or install NSQ 1.3.0 "
    "from https://nsq.io/deployment/installing.html and put it on PATH"
)


@dataclass(frozen=True, slots=True)
class Programs:
    """How each program is called; a part that the plan does not ask for may be empty."""

    nsqd: str
    nsqlookupd: str = ""
    nsqadmin: str = ""
    gateway: tuple[str, ...] = (*module("srtm"), "gateway")
    distributor: tuple[str, ...] = (*module("srtm"), "distributor")
    bridge: tuple[str, ...] = (*module("srtm"), "bridge", "run")
    journeys: tuple[str, ...] = (*module("srtm"), "journey", "run")


def find_programs(plan: Plan) -> Programs:
    """The programs that `plan` needs. Raises UnavailableError that says how to get them."""
    return Programs(
        nsqd=find_program("nsqd"),
        nsqlookupd=find_program("nsqlookupd") if plan.lookupd else "",
        nsqadmin=find_program("nsqadmin") if plan.nsqadmin else "",
    )


def find_program(name: str) -> str:
    """The path of a program, from PATH or beside Python, where `make setup` puts it. Raises
    UnavailableError."""
    beside = Path(sys.executable).parent
    path = shutil.which(name) or shutil.which(name, path=str(beside))
    if path is None:
        raise UnavailableError(f"{name} is neither on PATH nor in {beside}: {_REMEDY}")
    return path


def said_version(nsqd: str) -> str:
    """What `nsqd --version` says. Raises UnavailableError."""
    return _asked(nsqd).stdout.decode(errors="replace").strip()


def check_nsqd_flags(nsqd: str, flags: Sequence[str], where: str) -> None:
    """Check flags for nsqd as it reads them: asked for its version, it reads its flags first.
    Raises UsageError."""
    done = _asked(nsqd, *flags)
    if done.returncode or not done.stdout.startswith(b"nsqd "):
        said = "nsqd would only print its help"
        if done.returncode:
            said = done.stderr.decode(errors="replace").partition("\n")[0]
        raise UsageError(f"{where}: nsqd-flags: {said}")


def _asked(nsqd: str, *flags: str) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(
            [nsqd, *flags, "--version"],
            capture_output=True,
            timeout=_VERSION_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        what = "did not answer" if isinstance(error, subprocess.TimeoutExpired) else error.strerror
        raise UnavailableError(f"{nsqd} --version: {what}; {_REMEDY}") from None


def is_tested(said: str) -> bool:
    return re.match(rf"nsqd v{re.escape(TESTED_NSQ)}\.\d", said) is not None


def version_warning(nsqd: str) -> str | None:
    """One line when `nsqd --version` is not the tested one. Raises UnavailableError."""
    said = said_version(nsqd)
    if is_tested(said):
        return None
    return (
        f"warning: {nsqd} says {said[:80] or 'nothing'!r}, and SRTM is tested with "
        f"nsqd v{TESTED_NSQ}.x only"
    )
