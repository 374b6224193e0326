"""Which store an epoch comes from, and the proof that it was given out.

Epochs are numbers of one store. A store that was lost, or replaced by an older copy, counts anew,
and would give out numbers that gateways know already. So each store has an id, and each answer to a
gateway carries the largest epoch so far with a proof that only this store can make. A gateway shows
the three when it registers, and the distributor learns from them what its own store does not say.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

LARGEST_FOREIGN = 2**52
"""An epoch of another store cannot be proved here. A larger one is nobody's: a distributor that
makes a thousand epochs a second needs 100,000 years for it."""
MARGIN = 1_000
"""Epochs that are left out after such a store: those that it gave out after the last one that we
are shown. Gateways in contact lag by a second."""


class Standing(Enum):
    """What this store is to somebody who shows an epoch."""

    CURRENT = "it knows all of it"
    BEHIND = "it is an older copy of what it was"
    FOREIGN = "it is another store"
    LIE = "it has never given that out"


@dataclass(frozen=True, slots=True)
class Lineage:
    """id: public; secret: known to the store only."""

    id: str
    secret: str

    @classmethod
    def new(cls) -> "Lineage":
        return cls(secrets.token_hex(8), secrets.token_hex(16))

    def proof(self, epoch: int) -> str:
        """The proof that `epoch` was given out by this store."""
        return _proof(self.secret, epoch)

    def gave(self, store: str, epoch: int, proof: str) -> bool:
        """Is `epoch` proved to be one of this store?"""
        shown = hmac.compare_digest(self.proof(epoch).encode(), proof.encode())
        return store == self.id and shown

    def standing(self, epoch: int, store: str, newest: int, proof: str) -> Standing:
        """epoch: the largest that this store knows of; the others are what a gateway shows. One
        that has nothing to show (store is empty) knows nothing that we do not."""
        if not store:
            return Standing.CURRENT
        if store != self.id:
            return Standing.FOREIGN if newest <= LARGEST_FOREIGN else Standing.LIE
        if newest <= epoch:
            return Standing.CURRENT
        return Standing.BEHIND if self.gave(store, newest, proof) else Standing.LIE


@lru_cache(maxsize=64)  # each report shows that of the newest epoch
def _proof(secret: str, epoch: int) -> str:
    return hmac.new(secret.encode(), b"%d" % epoch, hashlib.sha256).hexdigest()[:24]
