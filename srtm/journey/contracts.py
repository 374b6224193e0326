"""The SLOs of topics' contracts: asked of the gateways, and set as a person would, by
`srtm topic set`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from srtm.host.python import module
from srtm.http.nsqd import stats
from srtm.http.nsqlookupd import producers_of
from srtm.journey.file import Journey
from srtm.limits.slo import SLO
from srtm.text.errors import SrtmError, UnavailableError

_SECONDS = 60.0
_MOST = 300
"""characters of what is told of a failure"""


@dataclass(frozen=True, slots=True)
class ContractSlos:
    """The SLO of a topic's contract at each gateway that answers, by its HTTP address; None: it has
    none. faults: why others do not tell"""

    slos: dict[str, SLO | None]
    faults: list[str]

    @property
    def slo(self) -> SLO | None:
        """The one that all have; None where they differ, or have none."""
        different = set(self.slos.values())
        return different.pop() if len(different) == 1 else None


def contract_slos(journey: Journey) -> ContractSlos:
    """Ask the gateways of the journey's topic."""
    found = ContractSlos({}, [])
    addresses = list(journey.nsqd_http)
    for lookupd in journey.lookupd:
        try:
            addresses += [each.http for each in producers_of(lookupd, journey.topic) if each.http]
        except UnavailableError as error:
            found.faults.append(str(error))
    if not addresses and not found.faults:
        found.faults.append(
            f"nobody has topic {journey.topic} yet: nsqlookupd names no broker; publish a message"
        )
    for address in dict.fromkeys(addresses):
        try:
            document = stats(journey.door(address), journey.topic)
        except SrtmError as error:
            found.faults.append(str(error))
            continue
        if "srtm" not in document:
            found.faults.append(
                f"{address} is an nsqd, which does not tell when messages arrive: put a gateway "
                "in front of it"
            )
            continue
        rows = document["srtm"]["topics"]
        if any(each.get("placed_elsewhere") for each in rows):
            continue  # it has no share, and so no contract
        told = [each.get("slo") for each in rows]
        found.slos[address] = SLO.parse(told[0]) if told and told[0] else None
    return found


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
