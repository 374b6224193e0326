"""The SLOs of topics' contracts, set as a person would: by `srtm topic set`."""

import asyncio
from collections.abc import Sequence

from srtm.host.python import module
from srtm.limits.slo import SLO

_SECONDS = 60.0
_MOST = 300
"""characters of what is told of a failure"""


async def set_contract_slo(topic: str, slo: SLO, owner: Sequence[str]) -> str:
    """Why it could not be set; "" where it was. owner: the flags that say who holds the contract: a
    deployment or a distributor"""
    child = await asyncio.create_subprocess_exec(
        *module("srtm"),
        *("topic", "set", "--slo", str(slo), *owner, "--", topic),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await asyncio.wait_for(child.communicate(), _SECONDS)
    except TimeoutError:
        return f"srtm topic set {topic}: no answer within {_SECONDS:g} s"
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode == 0:
        return ""
    return said.decode(errors="replace").strip()[-_MOST:] or f"srtm topic set {topic} failed"
