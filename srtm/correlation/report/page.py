"""The page of a result: what is in groups, when, how it looks, what it costs."""

from collections.abc import Callable
from datetime import UTC, datetime

from srtm.correlation.report.shown import Figures, Group, Shown, ShownTopic
from srtm.page import (
    Bar,
    Html,
    Lane,
    Line,
    Span,
    SpanRow,
    bar_chart,
    document,
    line_chart,
    raster,
    span_chart,
    table,
    tag,
)

Times = Callable[[str], list[float]]
_NS = 1e9
_GREY = 7
_LEAST_MS = 10.0
"""that one burst is drawn over"""


def page(shown: Shown, figures: dict[str, Figures], missing: str = "") -> str:
    """missing: why there are no figures of the trace, in a sentence."""
    groups = sum(topic.count for topic in shown.topics)
    publishers = sum(topic.publishers for topic in shown.topics)
    inside = publishers - sum(topic.ungrouped for topic in shown.topics)
    lead = (
        f"{groups:,} group{'' if groups == 1 else 's'} with {inside:,} of {publishers:,} "
        "publishers: their arrivals coincide beyond chance."
    )
    parts: list[Html] = [tag("h1", "Who bursts together"), tag("p", lead, class_="lead")]
    if missing:
        parts.append(tag("div", tag("p", missing), class_="note"))
    if len(shown.topics) > 1:
        parts.append(_index(shown))
    parts += [_section(topic, figures.get(topic.name), at) for at, topic in enumerate(shown.topics)]
    parts.append(_method(shown))
    return document("Correlation groups", *parts)


def _index(shown: Shown) -> Html:
    rows = [
        [
            tag("a", topic.name, href=f"#t{at}"),
            f"{topic.publishers:,}",
            f"{topic.count:,}",
            f"{topic.publishers - topic.ungrouped:,}",
        ]
        for at, topic in enumerate(shown.topics)
    ]
    more = f"{shown.left_out:,} more topics are not shown; name one by --topic."
    return tag(
        "section",
        tag("h2", "Topics"),
        table(["topic", "publishers", "groups", "publishers in groups"], rows),
        tag("p", more, class_="soft") if shown.left_out else None,
    )


def _section(topic: ShownTopic, figures: Figures | None, at: int) -> Html:
    parts: list[Html] = [tag("h2", topic.name), _facts(topic, figures)]
    if figures is not None and figures.waits:
        parts.append(_waits(figures))
    if figures is not None and figures.ticks:
        parts += [_raster(topic, figures), _bursts(topic, figures)]
    if topic.timeline is not None:
        parts.append(_timeline(topic))
    if topic.groups:
        parts.append(_groups(topic))
    else:
        parts.append(tag("p", "No publishers of this topic burst together beyond chance."))
    if figures is not None:
        parts.append(_curves(figures))
        parts.append(_statistics(figures))
    return tag("section", *parts, id=f"t{at}")


def _facts(topic: ShownTopic, figures: Figures | None) -> Html:
    inside = topic.publishers - topic.ungrouped
    found = {
        "groups": f"{topic.count:,}",
        "publishers in groups": f"{inside:,} of {topic.publishers:,}",
    }
    if figures is not None:
        of = figures.statistics
        found |= {
            "brokers": f"{of['brokers']:,}",
            "messages": f"{of['messages']:,}",
            "rate": f"{_short(of['rate'])}/s",
            "traced": _lasting(of["seconds"]),
        }
    items = (tag("div", tag("dt", name), tag("dd", value)) for name, value in found.items())
    return tag("dl", *items, class_="facts")


# --- charts -----------------------------------------------------------------------------------


def _waits(figures: Figures) -> Html:
    assert figures.contract is not None
    by_name = {each.name: each for each in figures.waits}
    spread, blind = by_name.get("each group spread"), by_name.get("publishers at random")
    said = ""
    if spread and blind and blind.p99_ms > 0:
        change = spread.p99_ms / blind.p99_ms - 1
        less = f"{-change:.0%} less" if change < 0 else f"{change:.0%} more"
        said = f"Spreading each group takes {less} at p99 than placing publishers at random. "
    about = (
        f"{said}The trace replayed through buckets of one contract (r = "
        f"{figures.contract.rate:,.0f}/s, 1.1 times the rate; b = {figures.contract.burst:,.0f}, "
        f"with which 99 % of the messages wait for no token in one bucket), split over "
        f"{figures.brokers} brokers."
    )
    bars = [
        Bar(each.name, each.p99_ms, f"{_short(each.p99_ms)} ms (mean {_short(each.mean_ms)})",
            2 if each is spread else 1 if each is blind else _GREY)
        for each in figures.waits
    ]  # fmt: skip
    return bar_chart("Token wait at p99, by how publishers are placed", about, bars)


def _raster(topic: ShownTopic, figures: Figures) -> Html:
    begins = figures.begins
    seconds = (figures.ends - begins) / _NS

    def times(publisher: str) -> list[float]:
        return [(each - begins) / _NS for each in figures.ticks.get(publisher, [])]

    lanes = _lanes(topic, times)
    if figures.lone:
        lanes.append(Lane("in no group", [times(each) for each in figures.lone], _GREY))
    about = (
        f"One row for each publisher, one tick for each arrival, {_lasting(seconds)} from "
        f"{_when(begins)}. What stands in a column came together."
    )
    return raster("Bursts", about, lanes, 0.0, seconds, "seconds")


def _bursts(topic: ShownTopic, figures: Figures) -> Html:
    at = {
        publisher: group.instants[len(group.instants) // 2]
        for group in topic.drawn
        if group.instants
        for publisher in group.publishers
    }

    def times(publisher: str) -> list[float]:
        since = at.get(publisher, 0)
        found = [(each - since) / 1e6 for each in figures.bursts.get(publisher, [])]
        return [each for each in found if each >= 0]

    lanes = _lanes(topic, times)
    seen = [each for lane in lanes for row in lane.rows for each in row]
    last = max([_LEAST_MS, *seen]) * 1.05
    return raster(
        "One burst of each group, close by",
        "How far its members are apart.",
        lanes,
        -0.05 * last,
        last,
        "ms since the first of the burst",
    )


def _lanes(topic: ShownTopic, times: Times) -> list[Lane]:
    return [
        Lane(_named(group), [times(each) for each in group.publishers], at)
        for at, group in enumerate(topic.drawn)
    ]


def _named(group: Group) -> str:
    return f"{group.name} ({group.size:,})"


def _timeline(topic: ShownTopic) -> Html:
    found = topic.timeline
    assert found is not None
    rows = [
        SpanRow(
            f"{life.head} +{life.size - 1:,}",
            [Span(life.first, life.last + 1, life.appeared, life.ended)],
        )
        for life in found.lives
    ]
    about = (
        f"{found.appeared:,} appeared and {found.ended:,} ended while traffic was traced. A dot is "
        "where a group appeared or ended; a line without one goes on beyond the trace. A group is "
        "named by its first publisher, and how many more there are."
    )
    day = len({_when(each)[:10] for each in found.begins}) > 1
    windows = [_when(each)[5:16] if day else _when(each)[11:19] for each in found.begins]
    return span_chart("Groups over time", about, rows, windows, "beginning of the window, UTC")


def _groups(topic: ShownTopic) -> Html:
    rows = [
        [
            group.name,
            ", ".join(group.publishers[:4])
            + (f" and {group.size - 4:,} more" if group.size > 4 else ""),
            f"{group.size:,}",
            f"{group.lift:,.3g}",
            f"{group.q:.0e}",
            f"{group.coincidences:,}",
            f"{group.share:.0%}",
            "a clock" if group.periodic else "",
        ]
        for group in topic.groups
    ]
    left = topic.count - len(rows)
    columns = ["group", "members", "publishers", "lift", "q", "coincidences",
               "share of bursts", "keeps a beat"]  # fmt: skip
    caption = (
        "Lift: coincidences over those expected by chance. q: rate of false discoveries at which "
        "the weakest pair is still found. Share: of a member's bursts that coincide."
        + (f" {left:,} smaller groups are not shown." if left else "")
    )
    return tag("div", tag("h3", "Groups"), table(columns, rows, text=2, caption=caption))


def _curves(figures: Figures) -> Html:
    lines = [
        Line("whole topic" if name is None else name, points, _GREY if name is None else at - 1)
        for at, (name, points) in enumerate(
            sorted(figures.curves.items(), key=lambda each: (each[0] is not None, each[0] or ""))
        )
        if len(points) > 1 and points[-1][0] > 0
    ]
    if not lines:
        return Html("")
    return line_chart(
        "Which burst each rate needs",
        "The smallest b with which no message waits for a token, for each r: of the topic, and of "
        "each group by itself, from 1.01 to 10 times its rate.",
        lines,
        "r, messages/s",
        "b, messages",
        log_x=True,
        log_y=True,
    )


def _statistics(figures: Figures) -> Html:
    of = figures.statistics
    scales = {name: value for name, value in of["dispersion"].items() if value is not None}
    points = [
        (float(name.removesuffix("ms")), value) for name, value in scales.items() if value > 0
    ]
    charts = []
    if len(points) > 1:
        charts.append(
            line_chart(
                "Burstiness by scale of time",
                "Variance of the messages in a window over their mean: 1 is Poisson, less a clock.",
                [Line("", points, 0)],
                "window, ms",
                "index of dispersion",
                log_x=True,
                log_y=True,
                half=True,
            )
        )
    talkers = [
        Bar(each["publisher"], each["share"] * 100, f"{each['share']:.1%}", 5)
        for each in of["talkers"]
    ]
    charts.append(bar_chart("Who sends most", "Share of the messages.", talkers, half=True))
    drift = "" if of["drift"] is None else f"The rate changes by {of['drift']:+.1%} an hour. "
    hours = sorted(range(24), key=lambda hour: -of["hours"][hour])[:3]
    busy = ", ".join(f"{hour:02d} h" for hour in sorted(hours) if of["hours"][hour])
    return tag(
        "div",
        tag("h3", "Statistics"),
        tag("p", f"{drift}Busiest hours, UTC: {busy}."),
        tag("div", *charts, class_="pair"),
    )


# --- words ------------------------------------------------------------------------------------


def _method(shown: Shown) -> Html:
    run = shown.run
    said = [
        f"Trace {run.trace}: {run.rows:,} rows.",
        "Pairs of publishers are judged by their exact times, at a rate of false discoveries of "
        f"{run.settings.rate:g}; at least {run.settings.floor:.0%} of the bursts of either one "
        "have to coincide beyond chance.",
    ]
    return tag("section", tag("h2", "Method"), *(tag("p", each) for each in said))


def _when(ns: int) -> str:
    return datetime.fromtimestamp(ns / _NS, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _lasting(seconds: float) -> str:
    for least, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * least:
            return f"{seconds / least:.3g} {unit}"
    return f"{seconds:.3g} s"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
