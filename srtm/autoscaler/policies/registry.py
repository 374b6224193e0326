"""The policies by the names of the command line."""

from collections.abc import Callable
from functools import partial

from srtm.autoscaler.decision import Handover, Policy
from srtm.autoscaler.packing import ALGORITHMS, least_loaded_ffd
from srtm.autoscaler.policies.closer import Closer1, Closer2
from srtm.autoscaler.policies.flas import Flas
from srtm.autoscaler.policies.iccbdc import Iccbdc, IccbdcCounts
from srtm.autoscaler.policies.keda import Keda
from srtm.autoscaler.policies.landau import Landau
from srtm.autoscaler.policies.li_ku import LiKu
from srtm.autoscaler.policies.linear import Linear
from srtm.autoscaler.policies.provisioned import Optimal, Peak, Provisioned, Trace
from srtm.autoscaler.policies.settings import Settings
from srtm.autoscaler.policies.srtm import Srtm

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
"""Landau's short names of packings; the others go by their own."""


def _observing(name: str, make: Callable[[str, Settings], Policy]) -> Factory:
    return lambda settings, trace: make(name, settings)


def _knowing(name: str, make: type[Provisioned]) -> Factory:
    def factory(settings: Settings, trace: Trace | None) -> Policy:
        if trace is None:
            raise ValueError(f"{name} provisions for a trace: give its arrivals and shares")
        return make(name, settings, trace)

    return factory


_COUNTS = {
    "range": (Handover.EAGER, "ICCBDC's counts with Kafka's range assignment"),
    "cooperative-sticky": (Handover.COOPERATIVE, "ICCBDC's counts, cooperative-sticky assignment"),
}

_ENTRIES: dict[str, tuple[Factory, str]] = {
    "closer1": (_observing("closer1", Closer1), "CLOSER Algorithm 1: least-loaded packing"),
    "closer2": (
        _observing("closer2", Closer2),
        "CLOSER Algorithm 2: with the lag that a rebalance adds",
    ),
    **{
        f"{name}-rate": (
            _observing(f"{name}-rate", partial(make, algorithm=least_loaded_ffd)),
            f"CLOSER Algorithm {name[-1]}, ranked by rate alone as its public code does",
        )
        for name, make in (("closer1", Closer1), ("closer2", Closer2))
    },
    "iccbdc": (_observing("iccbdc", Iccbdc), "ICCBDC AutoScaleCG: least-loaded FFD"),
    "li-ku": (_observing("li-ku", LiKu), "Li-Ku: M/M/1 queues and buffer length over windows"),
    "linear": (_observing("linear", Linear), "total rate over mu * f, Kafka's assignment"),
    "keda": (_observing("keda", Keda), "KEDA: sum of lag by the rules of Kubernetes' HPA"),
    "flas": (_observing("flas", Flas), "FLAS, reactive half: two thresholds of response time"),
    **{
        name: (_observing(name, partial(IccbdcCounts, handover=handover)), shows)
        for name, (handover, shows) in _COUNTS.items()
    },
    **{
        name: (
            _observing(name, partial(Landau, algorithm=algorithm)),
            f"Landau's sentinel over {packing}",
        )
        for packing, algorithm in ALGORITHMS.items()
        for name in (f"landau-{_SHORT.get(packing, packing)}",)
    },
    "srtm": (
        lambda settings, trace: Srtm(settings.slo, settings.decision_seconds),
        "what a change saves against what it costs, by forecast and error budget",
    ),
    "optimal": (
        _knowing("optimal", Optimal),
        "CLOSER's optimum: knows the trace, scales in no time",
    ),
    "peak": (_knowing("peak", Peak), "CLOSER's overprovisioning: packed for the trace's peak"),
}

POLICIES: dict[str, Factory] = {name: factory for name, (factory, _) in _ENTRIES.items()}
DESCRIPTIONS: dict[str, str] = {name: shows for name, (_, shows) in _ENTRIES.items()}
