"""The settings of `srtm autoscale simulate`: flags, file keys, environment, help in one table."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from srtm.autoscaler.decision import Handover
from srtm.autoscaler.simulator.arrivals import ArrivalModel
from srtm.limits.slo import SLO
from srtm.options.model import Bound, Objective
from srtm.text.fields import Duration

DEFAULT_PARTITIONS = 5
"""of CLOSER's and ICCBDC's experiments"""


def _numbers(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return tuple(float(part) for part in value.split(","))
    except ValueError:
        raise ValueError(f"{value!r} is no list of numbers such as 0.5,0.3,0.2") from None


Numbers = Annotated[tuple[float, ...], BeforeValidator(_numbers)]


class SimulateOptions(BaseModel):
    """See `srtm autoscale simulate --help`."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    workload: Path = Field(
        description="CSV with a row a second, the topic's events/s in its last column; a header is "
        "skipped"
    )
    policy: tuple[str, ...] = Field(
        min_length=1,
        description="policy to run; several are compared; `srtm autoscale policies` lists them",
    )
    partitions: int | None = Field(
        None,
        description=f"partitions with equal shares [default: {DEFAULT_PARTITIONS}, or those of "
        "--shares]",
    )
    shares: Numbers | None = Field(
        None, description="each partition's share of the events, such as 0.5,0.3,0.2; they sum to 1"
    )
    mu: Numbers = Field(
        (200.0,),
        min_length=1,
        description="events/s that a consumer serves; with several, such as 140,200,260, launched "
        "consumers get them in turn",
    )
    slo: Objective = Field(
        SLO(0.99, 0.5),
        description="share of events and the time from arrival to the end of processing (w_sla); "
        "0.99@500ms over 10m has to hold in every ten minutes",
    )
    contract: Bound | None = Field(
        None,
        description="rate=R,burst=B: the topic's contract, which bounds the events of any interval "
        "of t seconds by B + R t; the policy contract sizes by it, srtm expects no more "
        "[default: nothing bounds them]",
    )
    rebalance: Duration = Field(
        0.5, description="t_reb: from the last member's rejoining to the new assignment"
    )
    handover: Handover = Field(
        Handover.EAGER,
        description="what stops at a rebalance: eager: all partitions; cooperative: partitions "
        "that move, for two rebalances; direct: partitions that move, for one",
    )
    startup: Duration = Field(
        5.0, description="time from a launch, which is billed, to joining the group"
    )
    arrivals: ArrivalModel = Field(
        ArrivalModel.POISSON,
        description="events within a second: smooth: evenly; poisson: at random; burst: all at its "
        "start, as the papers send them",
    )
    lag_phase: Duration = Field(
        0.1, description="decisions are taken this long after each full second"
    )
    heartbeat: Duration = Field(
        3.0, description="how often a member asks whether a rebalance is due"
    )
    initial: int = Field(1, description="consumers at the start")
    seed: int = Field(1, ge=0, description="seed of Poisson arrivals and heartbeat phases")
    out: Path | None = Field(
        None,
        description="folder that gets simulation.json and simulation.png (arrivals, replicas, "
        "latency, CDF)",
    )

    @model_validator(mode="after")
    def _apart(self) -> "SimulateOptions":
        if self.shares is not None and self.partitions not in (None, len(self.shares)):
            raise ValueError(
                f"--partitions {self.partitions} and {len(self.shares)} --shares: give one of them"
            )
        return self
