"""Results as one HTML page."""

import base64
from collections.abc import Sequence

from srtm.page import Html, document, join, table, tag
from srtm.report.limits import limits_chart
from srtm.report.result import Result, number


def page(results: Sequence[Result], faults: Sequence[str], title: str) -> str:
    """faults: lines of files that are left out."""
    every = [bar for each in results for bar in each.bars]
    parts: list[Html] = [
        tag("h1", title),
        tag("p", f"{_counted(len(results), 'benchmark')}, {_counted(len(every), 'bar')}: ",
            _verdicts(results), class_="lead"),
    ]  # fmt: skip
    if faults:
        parts.append(
            tag(
                "div",
                tag("strong", f"{_counted(len(faults), 'file')} left out"),
                *(tag("p", line) for line in faults),
                class_="note bad",
            )
        )
    if len(results) > 1:
        parts.append(_index(results))
    parts += [_section(each, at) for at, each in enumerate(results)]
    return document(title, *parts)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _verdicts(results: Sequence[Result]) -> Html:
    found = []
    for met, name in ((False, "missed"), (None, "undecided"), (True, "met")):
        count = sum(each.count(met) for each in results)
        if count:
            found += [tag("span", f"{count} {name}", class_=f"chip {name}"), Html(" ")]
    return join(*found)


def _index(results: Sequence[Result]) -> Html:
    rows = [
        [
            join(tag("a", each.benchmark, href=f"#r{at}"), tag("div", each.shows, class_="soft")),
            _verdicts([each]) if each.bars else "no bars",
            each.started_at[:10],
        ]
        for at, each in enumerate(results)
    ]
    missed = ["missed-row" if each.count(False) else None for each in results]
    columns = ["benchmark", "bars", "when"]
    return tag("section", tag("h2", "All results"), table(columns, rows, text=2, classes=missed))


def _section(result: Result, at: int) -> Html:
    parts: list[Html] = [
        tag("h2", result.benchmark),
        tag("p", result.shows, class_="lead") if result.shows else Html(""),
        tag("p", _verdicts([result])),
        _facts(result),
    ]
    if result.bars:
        parts += [_bars(result), limits_chart(result.bars)]
    if result.picture:
        encoded = base64.b64encode(result.picture).decode()
        parts.append(tag("figure", tag("img", src=f"data:image/png;base64,{encoded}",
                                       alt=f"plot of {result.benchmark}")))  # fmt: skip
    for each in result.tables:
        parts += [
            tag("h3", each.title or "Figures"),
            table(each.columns, each.full_rows),
        ]
    if result.notes:
        parts += [tag("h3", "Notes"), tag("ul", *(tag("li", note) for note in result.notes))]
    if result.method or result.settings:
        settings = [f"{name} = {value}"[:200] for name, value in result.settings.items()]
        parts += [
            tag("h3", "Method"),
            *(tag("p", each) for each in result.method.split("\n\n") if each.strip()),
            tag("p", "; ".join(settings), class_="soft") if settings else Html(""),
        ]
    return tag("section", *parts, id=f"r{at}")


def _bars(result: Result) -> Html:
    rows = [
        [
            each.name,
            join(
                tag("span", each.verdict, class_=f"chip {each.verdict}"),
                tag("div", each.why, class_="soft") if each.why else None,
            ),
            number(each.value),
            each.limit,
            each.range,
        ]
        for each in result.bars
    ]
    classes = ["missed-row" if each.met is False else None for each in result.bars]
    return table(["bar", "verdict", "figure", "limit", "range"], rows, text=2, classes=classes)


def _facts(result: Result) -> Html:
    machine = result.machine
    found = {
        "when": result.started_at.replace("T", " ")[:16],
        "took": f"{result.seconds:,.0f} s" + (", --quick" if result.quick else ""),
        "commit": result.commit.shown,
        "machine": f"{machine.cores or '?'} cores, {machine.cpu or 'CPU unknown'}",
        "memory": f"{machine.memory_bytes / 2**30:.0f} GiB" if machine.memory_bytes else "",
        "kernel": machine.kernel,
        "Python": machine.python,
        "NSQ": machine.nsqd or "",
        "load average": machine.load_average.shown("{:.1f} before, {:.1f} after"),
    }
    return tag(
        "dl",
        *(
            tag("div", tag("dt", name), tag("dd", value, class_="plain"))
            for name, value in found.items()
            if value
        ),
        class_="facts plain",
    )
