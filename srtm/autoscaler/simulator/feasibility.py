"""What no policy can do for these arrivals in this setting, and what would help."""

from srtm.autoscaler.decision import Handover
from srtm.autoscaler.simulator.arrivals import Arrivals
from srtm.autoscaler.simulator.consumer import Consumer, Partition
from srtm.autoscaler.simulator.run import ROUNDING_SECONDS
from srtm.autoscaler.simulator.setting import Setting
from srtm.text.duration import format_duration


def what_cannot_be_met(arrivals: Arrivals, setting: Setting) -> tuple[str, ...]:
    """One sentence each, with its remedy; empty where the SLO can be kept and a hand-over is
    shorter than its target. The simulation runs all the same."""
    return (*_overload(arrivals, setting), *_handover(setting), *_idle(arrivals, setting))


def _late_alone(arrivals: Arrivals, setting: Setting) -> list[int]:
    late = []
    for times in arrivals.times:
        partition = Partition(times)
        alone = Consumer("alone", setting.fastest_mu, 0.0, setting.max_poll, partitions=[partition])
        alone.serve(arrivals.seconds + len(times) / setting.fastest_mu + 1.0)
        target = setting.slo.target_seconds + ROUNDING_SECONDS
        late.append(int((partition.ends - times > target).sum()))
    return late


def _overload(arrivals: Arrivals, setting: Setting) -> list[str]:
    target = setting.slo.target_seconds
    each = 1.0 / setting.fastest_mu
    if each > target + ROUNDING_SECONDS:
        return [
            f"one event takes {format_duration(round(each, 6))} and the SLO allows "
            f"{format_duration(target)}: every event is late; make consumers faster or allow more"
        ]
    warnings = []
    late = _late_alone(arrivals, setting)
    peaks = arrivals.per_second().max(axis=1, initial=0).tolist()
    over = [(peak, -p) for p, peak in enumerate(peaks) if late[p] and peak > setting.fastest_mu]
    if over:
        peak, minus = max(over)
        more = f" ({len(over)} partitions get more than that)" if len(over) > 1 else ""
        warnings.append(
            f"partition {-minus} gets {peak} events/s at its peak, one consumer serves "
            f"{setting.fastest_mu:g}/s{more}: split the topic over more partitions or make "
            "consumers faster"
        )
    # Two consumers never read one partition: this share bounds every policy's from above.
    share = 1.0 - sum(late) / max(1, arrivals.events)
    if share < setting.slo.percentile:
        warnings.append(
            f"a consumer for each partition from the start keeps {100 * share:.2f} % within "
            f"{format_duration(target)}, and the SLO asks for {100 * setting.slo.percentile:g} %: "
            "no policy can keep it; split the topic over more partitions, make consumers faster "
            "or allow a longer latency"
        )
    return warnings


def _handover(setting: Setting) -> list[str]:
    target, takes = setting.slo.target_seconds, setting.rebalance_seconds
    longer = f"the SLO's {format_duration(target)} is shorter than a rebalance of"
    if takes > target:
        remedy = "use direct hand-over" if setting.handover is not Handover.DIRECT else "move less"
        what = "every partition" if setting.handover is Handover.EAGER else "every moved partition"
        return [
            f"{longer} {format_duration(takes)}: {what} is late; {remedy}, allow a longer latency "
            "or provision for the peak"
        ]
    waits = setting.heartbeat_seconds
    told_later = setting.handover is not Handover.DIRECT and not setting.told_together
    if told_later and takes + waits > target:
        what = "every partition" if setting.handover is Handover.EAGER else "every moved partition"
        return [
            f"{longer} up to {format_duration(takes + waits)} (members hear of it at their "
            f"heartbeats, {format_duration(waits)}): {what} can be late; use direct hand-over or "
            "a shorter heartbeat"
        ]
    return []


def _idle(arrivals: Arrivals, setting: Setting) -> list[str]:
    idle = setting.initial - len(arrivals.times)
    if idle <= 0:
        return []
    return [
        f"the group starts with {setting.initial} consumers and there are {len(arrivals.times)} "
        f"partitions: {idle} would have nothing to do; start with fewer or add partitions"
    ]
