"""Every policy runs on every kind of group: partitions without events, one partition, more
consumers than partitions, silence, and more than can be served."""

import itertools
import json
import math
from random import Random

import pytest

from srtm.autoscaler.comparison import Experiment, policy_names, run_policy
from srtm.autoscaler.decision import Handover
from srtm.autoscaler.simulator.arrivals import ArrivalModel, even_shares
from srtm.autoscaler.simulator.clairvoyant import Clairvoyant, plan
from srtm.autoscaler.simulator.run import Run, simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.limits.ceiling import Ceiling
from srtm.limits.slo import SLO
from tests.support.cases import cases

MU = 200.0
SHARES = {
    "one partition": (1.0,),
    "all in one of three": (1.0, 0.0, 0.0),
    "nearly all in one of three": (0.98, 0.01, 0.01),
    "two of four are empty": (0.0, 0.5, 0.5, 0.0),
    "twelve even ones": even_shares(12),
}
RATES = {
    "silence": [0.0] * 20,
    "steady": [150.0] * 20,
    "more than a consumer serves": [450.0] * 12,
    "one second": [100.0],
    "a ramp": [10.0 * second for second in range(25)],
    "silence after a burst": [200.0] * 5 + [0.0] * 15,
}
CONTRACT = Ceiling(rate=160.0, burst=300.0)
"""Some of the rates are more than it allows."""
INITIAL = (1, 5, 14)
MODELS = (ArrivalModel.POISSON, ArrivalModel.BURST)
CORNERS = list(itertools.product(SHARES, RATES, INITIAL, Handover, MODELS))


def check(run: Run, experiment: Experiment) -> None:
    """Each event has a latency, consumers are billed for as long as it lasts, figures are JSON."""
    assert len(run.latency) == experiment.arrivals().events
    assert run.unserved == 0
    assert all(count >= 1 for at, count in run.replicas if at < run.seconds)
    assert run.replica_minutes >= run.seconds / 60 - 1e-9
    summary = json.loads(json.dumps(run.summary(), allow_nan=False))
    assert 0 <= summary["sla_percent"] <= 100
    assert all(math.isfinite(each) for each in summary.values() if isinstance(each, float))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", policy_names())
def test_every_policy_runs_in_every_corner(name: str) -> None:
    sample = Random(name).sample(CORNERS, cases(len(CORNERS)) // 4)
    for shares, rates, initial, handover, model in sample:
        setting = Setting(SLO(0.99, 0.5), mu=MU, handover=handover, initial=initial, seed=1)
        contract = CONTRACT if name == "contract" else None
        experiment = Experiment(RATES[rates], SHARES[shares], model, setting, contract)
        arrivals = experiment.arrivals()
        if name != "clairvoyant":
            check(run_policy(name, experiment, arrivals).run, experiment)
            continue
        found = plan(arrivals, setting, effort=0.005)
        check(simulate(Clairvoyant(found), arrivals, setting), experiment)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shares", SHARES)
def test_the_clairvoyant_schedules_partitions_without_events(shares: str) -> None:
    """Some of its groups have a consumer with nothing at all to do."""
    setting = Setting(SLO(0.99, 0.5), mu=MU, handover=Handover.DIRECT, seed=1)
    for rates in RATES.values():
        arrivals = Experiment(rates, SHARES[shares], ArrivalModel.POISSON, setting).arrivals()
        found = plan(arrivals, setting, effort=0.005)
        assert all(len(parts) <= len(SHARES[shares]) for parts in found.groups)
