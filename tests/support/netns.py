"""Root, and the tools of network namespaces; a skip where they are missing."""

import os
import shutil
import subprocess

import pytest

_TOOLS = ("ip", "tc", "nft", "nsenter")


def need_namespaces() -> None:
    missing = [each for each in _TOOLS if shutil.which(each) is None]
    reason = f"no {', '.join(missing)}" if missing else ""
    if not reason and os.geteuid() != 0:
        reason = "network namespaces need root"
    if not reason:
        tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
        reason = "" if tried.returncode == 0 else "no network namespaces here"
    if reason:
        pytest.skip(reason)
