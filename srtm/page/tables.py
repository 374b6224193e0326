"""Tables."""

from collections.abc import Sequence

from srtm.page.html import Child, Html, join, tag


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Child]],
    text: int = 1,
    caption: str = "",
    classes: Sequence[str | None] = (),
) -> Html:
    """text: so many of the first columns are words, to the left; the others are figures.
    classes: of each row. A wide table scrolls by itself, the page never does."""

    def _class(place: int) -> str | None:
        if place >= text:
            return "right"
        return "words" if text > 1 and place == text - 1 else None

    def cell(kind: str, place: int, value: Child) -> Html:
        return tag(kind, value, class_=_class(place))

    head = tag("tr", *(cell("th", place, each) for place, each in enumerate(columns)))
    body = [
        tag(
            "tr",
            *(cell("td", place, each) for place, each in enumerate(row)),
            class_=classes[number] if number < len(classes) else None,
        )
        for number, row in enumerate(rows)
    ]
    made = tag("table", tag("thead", head), tag("tbody", *body))
    said = tag("p", caption, class_="soft") if caption else None
    return join(said, tag("div", made, class_="scroll"))
