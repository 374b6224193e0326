"""The policies by the names of the command line."""

import difflib
from collections.abc import Callable, Iterable
from functools import partial

from srtm.autoscaler.decision import Handover, Policy
from srtm.autoscaler.packing import ALGORITHMS, least_loaded_ffd
from srtm.autoscaler.policies.closer import Closer1, Closer2
from srtm.autoscaler.policies.contract import Contracted
from srtm.autoscaler.policies.flas import Flas
from srtm.autoscaler.policies.iccbdc import Iccbdc, IccbdcCounts
from srtm.autoscaler.policies.keda import Keda
from srtm.autoscaler.policies.landau import Landau
from srtm.autoscaler.policies.latency import Latency
from srtm.autoscaler.policies.li_ku import LiKu, LiKuTuned
from srtm.autoscaler.policies.linear import Linear
from srtm.autoscaler.policies.provisioned import Optimal, Peak, Trace
from srtm.autoscaler.policies.settings import Settings
from srtm.autoscaler.policies.srtm import Srtm
from srtm.autoscaler.policies.taken_back import TakenBack

Factory = Callable[[Settings, Trace | None], Policy]
"""Makes a policy. `optimal` and `peak` need the trace and raise ValueError without it."""

_SHORT = {
    "next-fit": "nf",
    "first-fit": "ff",
    "best-fit": "bf",
    "worst-fit": "wf",
    "next-fit-decreasing": "nfd",
    "first-fit-decreasing": "ffd",
    "best-fit-decreasing": "bfd",
    "worst-fit-decreasing": "wfd",
}
"""Landau's short names of packings; one that is not here is `landau-` and its own name."""


SIZES_BY_CONTRACT = "contract"
"""The policy that raises ValueError for settings without a contract."""


def _knowing(name: str, make: Callable[[str, Settings, Trace], Policy]) -> Factory:
    def factory(settings: Settings, trace: Trace | None) -> Policy:
        if trace is None:
            raise ValueError(f"{name} provisions for a trace: give its arrivals and shares")
        return make(name, settings, trace)

    return factory


_OBSERVING: dict[str, tuple[Callable[[str, Settings], Policy], str]] = {
    "closer1": (Closer1, "CLOSER Algorithm 1: least-loaded packing"),
    "closer2": (Closer2, "CLOSER Algorithm 2: with the lag that a rebalance adds"),
    **{
        f"{name}-rate": (
            partial(make, algorithm=least_loaded_ffd),
            f"CLOSER Algorithm {name[-1]}, ranked by rate alone as its public code does",
        )
        for name, make in (("closer1", Closer1), ("closer2", Closer2))
    },
    "iccbdc": (Iccbdc, "ICCBDC AutoScaleCG: least-loaded FFD"),
    "li-ku": (LiKu, "Li-Ku: M/M/1 queues and buffer length over windows"),
    "li-ku-tuned": (LiKuTuned, "Li-Ku, its thresholds tuned by the share of late events"),
    "linear": (Linear, "total rate over mu * f, Kafka's assignment"),
    "keda": (Keda, "KEDA: sum of lag by the rules of Kubernetes' HPA"),
    "latency": (Latency, "predicted latency over the SLO's target, by the rules of the HPA"),
    "flas": (Flas, "FLAS, reactive half: two thresholds of response time"),
    "range": (
        partial(IccbdcCounts, handover=Handover.EAGER),
        "ICCBDC's counts with Kafka's range assignment",
    ),
    "cooperative-sticky": (
        partial(IccbdcCounts, handover=Handover.COOPERATIVE),
        "ICCBDC's counts, cooperative-sticky assignment",
    ),
    **{
        f"landau-{_SHORT.get(packing, packing)}": (
            partial(Landau, algorithm=algorithm),
            f"Landau's sentinel over {packing}",
        )
        for packing, algorithm in ALGORITHMS.items()
    },
    SIZES_BY_CONTRACT: (
        Contracted,
        "fewest consumers that keep the target whatever a contract allows",
    ),
    "srtm": (
        lambda name, settings: TakenBack(
            Srtm(settings.slo, settings.decision_seconds, ceiling=settings.contract), settings.slo
        ),
        "what a change saves against what it costs, by forecast and error budget",
    ),
}
_KNOWING: dict[str, tuple[Callable[[str, Settings, Trace], Policy], str]] = {
    "optimal": (Optimal, "CLOSER's optimum: knows the trace, scales in no time"),
    "peak": (Peak, "CLOSER's overprovisioning: packed for the trace's peak"),
}


def _observing(name: str, make: Callable[[str, Settings], Policy]) -> Factory:
    return lambda settings, trace: make(name, settings)


POLICIES: dict[str, Factory] = {
    **{name: _observing(name, make) for name, (make, _) in _OBSERVING.items()},
    **{name: _knowing(name, make) for name, (make, _) in _KNOWING.items()},
}
DESCRIPTIONS = {name: entry[1] for name, entry in {**_OBSERVING, **_KNOWING}.items()}


def meant(name: str, known: Iterable[str]) -> str:
    """Which of the known names looks like `name`, or where they are listed."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "`srtm autoscale policies` lists them"
