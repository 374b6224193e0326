"""What `srtm correlate envelope`, `statistics` and `what-if` show on a terminal."""

from typing import Any

from srtm.text.terminal import Column, Table

Document = dict[str, Any]
_CASES = {"one_bucket": "one bucket", "traced": "as traced", "placed": "as placed"}
_LONGEST = 256
"""characters of a name; a gateway cuts publishers there"""


def envelope_tables(document: Document) -> list[Table]:
    keys = document["keys"]
    late = f"{1 - document['percentile']:.4g}"
    multiples = [f"b at {each}" for each in _rates(document)]
    curves = Table(
        *(Column(key, text=True) for key in keys),
        Column("messages", 1),
        Column("r/s"),
        Column("b"),
        *(Column(each, 3 + place) for place, each in enumerate(multiples)),
        title=f"r is {document['headroom']:g} times the rate; with b at most {late} of the "
        "messages wait for tokens; right of it the bursts with which none does, by rate",
    )
    for row in document["envelopes"]:
        curves.add(
            *(row[key][:_LONGEST] for key in keys),
            f"{row['messages']:,}",
            _number(row["rate"]),
            f"{row['burst']:,}",
            *(_number(each["burst"]) for each in row["curve"]),
        )
    split = Table(
        Column("topic", text=True),
        Column("brokers"),
        Column("r/s"),
        Column("b"),
        title="the same for whole topics, split over their brokers in proportion",
    )
    for row in document["split"]:
        split.add(row["topic"], str(row["brokers"]), _number(row["rate"]), f"{row['burst']:,}")
    return [curves, split]


def _rates(document: Document) -> list[str]:
    """The rates of a curve as multiples of its own rate, as text; each curve has the same
    multiples."""
    for row in document["envelopes"]:
        own = row["rate"] / document["headroom"]
        return [f"{each['rate'] / own:.3g} r" if own else "-" for each in row["curve"]]
    return []


def statistics_tables(document: Document) -> list[Table]:
    topics = document["topics"]
    scales = list(topics[0]["dispersion"]) if topics else []
    late = any("late" in topic for topic in topics)
    table = Table(
        Column("topic", text=True),
        Column("publishers", 1),
        Column("brokers", 5),
        Column("messages", 2),
        Column("seconds", 6),
        Column("rate/s"),
        Column("drift/h", 4),
        *(Column(f"dispersion {scale}", 3) for scale in scales),
        *(Column(each) for each in (("late by tokens", "rejected", "closed") if late else ())),
    )
    talkers = Table(
        Column("topic", text=True),
        Column("busiest hours UTC", 1, text=True),
        Column("who sends most", text=True, sentence=True),
    )
    for topic in topics:
        table.add(
            topic["topic"],
            f"{topic['publishers']:,}",
            f"{topic['brokers']:,}",
            f"{topic['messages']:,}",
            f"{topic['seconds']:,.1f}",
            _number(topic["rate"]),
            "-" if topic["drift"] is None else f"{topic['drift']:+.1%}",
            *(_number(topic["dispersion"][scale]) for scale in scales),
            *(f"{topic['late'][cause]:.2%}" for cause in topic.get("late", {})),
        )
        hours = sorted(range(24), key=lambda hour: -topic["hours"][hour])[:3]
        talkers.add(
            topic["topic"],
            ", ".join(f"{hour:02d} {topic['hours'][hour]:.0%}" for hour in sorted(hours)
                      if topic["hours"][hour]),
            ", ".join(f"{each['publisher'][:_LONGEST]} {each['share']:.1%}"
                      for each in topic["talkers"]),
        )  # fmt: skip
    return [table, talkers]


def what_if_tables(document: Document) -> list[Table]:
    table = Table(
        Column("topic", text=True),
        Column("", text=True),
        Column("broker", text=True),
        Column("r/s", 1),
        Column("b", 1),
        Column("messages", 3),
        Column("mean ms", 2),
        Column("p50 ms", 4),
        Column("p99 ms"),
        Column("worst ms", 5),
        Column("late", 1),
        title="waits for tokens",
    )
    for topic in document["topics"]:
        contract = topic["contract"]
        for name, case in topic["cases"].items():
            rows = [{"broker": "all", **contract, **case}]
            brokers = case.get("brokers", [])
            for row in rows + (brokers if len(brokers) > 1 else []):
                table.add(
                    topic["topic"],
                    _CASES[name],
                    row["broker"],
                    _number(row["rate"]),
                    _number(row["burst"]),
                    f"{row['messages']:,}",
                    *(f"{row[f'{each}_ms']:,.2f}" for each in ("mean", "p50", "p99", "worst")),
                    "-" if row["late_share"] is None else f"{row['late_share']:.2%}",
                )
    return [table]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g}" if abs(value) < 1_000 else f"{value:,.0f}"
