"""The sub-buckets after moves: what somebody sends takes its part of the share along.

So shares that follow their publishers' rates still do, what the TB Adaptor has found stays, and no
bucket changes at brokers where nobody comes or goes.
"""

from collections.abc import Iterable, Mapping
from math import fsum

from tb_adaptor.policies.policy import RATE_FLOOR
from tb_adaptor.share import Part, divide


def shares_after(
    held: Mapping[str, Part],
    rates: Mapping[str, float],
    moves: Iterable[tuple[str, str, float]],
    left: Iterable[str],
) -> dict[str, Part]:
    """Sums are at most those of `held` as they round, which are not above r and b.

    held:  of each broker before; rates: messages/s of the topic that came to it
    moves: (from, to, messages/s)
    left:  brokers that keep no publisher; all that they have goes along

    Raises ValueError where b is less than a message for each broker.
    """
    r = {name: part.rate for name, part in held.items()}
    b = {name: part.burst for name, part in held.items()}
    found, deserted = list(moves), set(left)
    for source, part in held.items():
        going = fsum(rate for from_, _, rate in found if from_ == source)
        if not going:
            continue
        whole = going if source in deserted else max(going, rates.get(source, 0.0))
        for from_, to, rate in found:
            if from_ == source:
                r[to] = r.get(to, 0.0) + part.rate * rate / whole
                b[to] = b.get(to, 0.0) + part.burst * rate / whole
        r[source] -= part.rate * going / whole
        b[source] -= part.burst * going / whole
    for name in deserted:
        del r[name], b[name]
    total = Part(
        fsum(part.rate for part in held.values()), fsum(part.burst for part in held.values())
    )
    return divide(total, _not_below_0(r), _not_below_0(b), RATE_FLOOR)


def _not_below_0(parts: Mapping[str, float]) -> dict[str, float]:
    return {name: max(0.0, value) for name, value in parts.items()}
