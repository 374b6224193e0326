"""Every constant of the policy `srtm`, in one place.

They were chosen on generated workloads: those of the price, the forecast and the groups on earlier
ones, those of debts and surges on some of the cases of `python -m benchmarks tune`, with an eye on
the papers' workloads, which were to get no dearer. That command chooses them anew; no case of
`python -m benchmarks run unseen` was looked at for any of them. What follows from mathematics (the
points of Gauss-Hermite, the rounding of a comparison) stands where it is used.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Seconds, shares and factors. None of them belongs to one workload."""

    # --- how far it looks ---
    horizon_seconds: float = 20.0
    """How far the programme looks. Further than a few start-ups a forecast knows little."""
    persist_seconds: float = 20.0
    """How long the end of the horizon is taken to last. The horizon and this together are what a
    change must pay for itself in."""
    longest_launch_seconds: float = 120.0
    """A launch that takes longer is planned for as if it took so long. It looks twice as far as a
    launch takes, which costs time, and no forecast is worth much there."""
    fewest_intervals: int = 5
    """The fewest intervals that the policy looks ahead, however long they are."""
    paths: int = 3
    """Pieces of the last minute that stand for the next seconds."""
    first_seconds: float = 4.0
    first_intervals: int = 2
    """How long the policy only looks before it decides anything: `first_seconds`, and at least so
    many intervals; these alone where more comes, or waits, than is served. They show a rate, and
    its trend if it changes by the second."""
    wider: int = 5
    """How many consumers more, or fewer, one step may ask for, but for twice and half as many."""

    # --- when a smaller group is worth it ---
    noisy: float = 0.25
    """Relative error of the forecast with which a scale-down has to be worth it for a whole lead,
    as long as undoing it takes; for less, where the error is smaller. Of a rate that jumps about,
    one second wants a smaller group and the next one the bigger again."""
    surge_frequent: float = 0.01
    """How likely surges are with which they count as errors of the forecast there."""
    held: float = 0.25
    """A smaller group is charged with this share of what it would cost to be held to it until it
    shows which future comes. With none, groups go down and up again wherever hand-overs are free;
    with all of it, they hardly ever go down."""
    there_and_back: float = 2.0
    """A scale-down is charged with the hand-over that will undo it: rates come in waves."""

    # --- the error budget and its price ---
    price: float = 28.0
    """A late event is worth the replica time of so many served ones where one in a hundred may be
    late and the budget is as planned; where twice as many may be, each is worth half. Where
    hand-overs are free, half of it uses up the budget of smooth waves; where they cost, half as
    much again does."""
    reserve: float = 0.2
    reserve_root: float = 0.25
    """The share of the allowed late events that is kept back: what comes last cannot be made good.
    It is `reserve` where one in a hundred may be late, as a hand-over or two at the end is a good
    part of them all; it is less where more may be late, by the power `reserve_root` of their
    share."""
    owed: float = 2.5
    """Late events that are owed, or left, count up to so many times what takes the price to its
    limit: a start that went wrong is not made good at any price."""
    memory_seconds: float = 400.0
    """The time after which half of what was late, and allowed, no longer counts, for what a
    hand-over may cost and for whether there is a debt. In a long run it is `halving_share` of the
    time since the start, where that is more; it is never more than half of the SLO's window."""
    hand_overs: float = 0.5
    """The share of the allowed late events that hand-overs may always cause."""
    halving_seconds: float = 120.0
    halving_share: float = 0.25
    """A surplus or deficit counts against the budget of this long: of two minutes at first, of a
    quarter of the time since the start later, so that a long run settles."""
    settling: float = 0.08
    """The reserve shrinks by this power as that grows: the end of two hours is surer than of ten
    minutes."""
    steepness: float = 2.0
    cheapest: float = -1.5
    dearest: float = 2.0
    """The price is price * exp(steepness * deficit), the exponent within these. Unused budget makes
    late events little cheaper (near mu the queue's cliff is steep), a deficit much dearer."""
    in_debt: float = 0.5
    """The least exponent while more has been late than was allowed: what is forgiven of a debt is
    not spent again."""
    least: float = 1.2
    """What comes in a second is worth at least so many replica-seconds. With less than one, a group
    is let fall behind: all is late, one consumer is saved, and what is spent so has to be made good
    later, at a high price."""
    small_seconds: float = 10.0
    """A hand-over that costs less than the budget of so long is always affordable."""
    hand_over_memory: float = 0.7
    """The weight of the last hand-overs' cost, when a cheaper one is expected."""

    # --- the forecast ---
    windows: tuple[int, ...] = (3, 5, 8, 13, 21, 34)
    """Intervals that a line is fitted to; Fibonacci's, so that neighbours differ by the same
    share."""
    dampings: tuple[float, ...] = (1.0, 0.9, 0.7)
    """What is left of the slope after each interval: a line that goes on, and one that flattens."""
    forecast_memory: float = 0.95
    """The share of its weight in the mean that an old error keeps with each interval: a memory of
    20 intervals, about one wave of the papers' traces."""
    level_seconds: float = 5.0
    """Over which a rate is averaged before an interval's slots are divided by it: their noise stays
    in the shape, a ramp does not."""

    first_error: float = 0.1
    """The error of the forecast, as a share of the rate, before a forecast has been compared with
    what came."""
    jump_intervals: int = 8
    jump_errors: float = 4.5
    jump_share: float = 0.05
    """A rate that is so many of their errors off a line through so many rates before it has come to
    a new level, of which those say nothing; the error is taken to be so much of them at least."""

    # --- surprises ---
    surge_errors: float = 5.0
    surge_share: float = 0.1
    """A rise that was not forecast stands out when it is so many times the usual error, and so much
    of the rate."""
    surge_most: float = 0.25
    """The highest probability of all surges together."""
    surge_undiscounted: float = 0.5
    """What is left of the budget makes late events cheaper by a factor, and those of surges by
    that factor to the power of 1 less this."""
    surge_weights: tuple[float, float] = (0.003, 0.015)
    surge_prior: tuple[float, float] = (0.8, 0.2)
    """How likely the two futures are, and their rises as shares of the rate, before there is
    experience."""
    surge_prior_seconds: float = 45.0
    """How much experience the prior is worth."""
    surge_memory_seconds: float = 450.0
    """The time after which half of a rise is forgotten."""
    surprise_until: float = 0.5
    """The share of a start-up during which a group that is being launched may still grow; it takes
    over when all have joined."""

    # --- groups and hand-overs ---
    move_worth: float = 0.25
    """A move must lower the fullest consumer by at least this share of the moved partition's load.
    Equal partitions are never quite equal within a minute, and what is moved stands still."""
    uneven: float = 1.25
    """A partition with so many times the work of an even split is one that bounds a group: less is
    chance, and divides well enough."""
    longest_poll_seconds: float = 1.0
    """What an owner still serves before it gives a partition up, at most: more is overload, which
    the queues show anyhow."""
    heartbeat_seconds: float = 3.0
    """Kafka's default: until a hand-over has been seen, a member may learn of one that late."""
    stop_memory: float = 0.8
    """The weight of the old estimate when a shorter stop is seen; a longer one counts at once."""
    stop_fades_seconds: float = 120.0
    """The time after which half of what a stop was longer than the shortest one no longer
    counts."""
    correction_events: float = 10.0
    correction_least: float = 0.5
    correction_most: float = 3.0
    """Late events of hand-overs, seen for each predicted: so many are added on both sides, as a
    ratio of small numbers says nothing, and one hand-over counts within these."""
    hand_over_settles_seconds: float = 15.0
    """The time after the beginning of a hand-over until its late events are counted: a start-up,
    and the queue it left."""

    # --- groups that stand ---
    standing_begin_seconds: float = 20.0
    """What is late so soon after the start counts for nobody."""
    standing_seconds: float = 90.0
    """How long groups that stand are only watched."""
    standing_memory_seconds: float = 300.0
    """The time after which half of what they cost, and what the plan did, no longer counts."""
    standing_deal_seconds: float = 30.0
    """How often their partitions are dealt out anew."""
    standing_sizes: int = 24
    """How many sizes are played, evenly apart, where more are possible."""
    standing_margin: float = 0.1
    """One has to cost so much less than the plan."""
    standing_hold_seconds: float = 120.0
    standing_longest_seconds: float = 3600.0
    """For how long its size is the least at first, and at most."""


TUNING = Tuning()
