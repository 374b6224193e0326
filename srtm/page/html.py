"""HTML that cannot be broken by what it shows: text is escaped unless it was made here."""

from html import escape

from srtm.page.style import STYLE


class Html(str):
    """Text that is HTML already. Only `tag` and `join` make it of what others wrote."""

    __slots__ = ()


Child = str | int | float | Html | None

_EMPTY = frozenset({"br", "meta", "img", "line", "rect", "circle", "path"})
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""for the browser: whatever a page holds, it runs nothing and loads nothing"""


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Html:
    """One element. Children that are no Html, and all attributes, are escaped; None is left out.

    An attribute's name is written with _ for -; a last _ is dropped (class_).
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY:
        return Html(
            f"<{name}{written}>" if name in ("br", "meta", "img") else f"<{name}{written}/>"
        )
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """One after the other."""
    return Html(
        "".join(
            each if isinstance(each, Html) else escape(_text(each))
            for each in children
            if each is not None
        )
    )


def _text(value: Child) -> str:
    """A coordinate needs no more than two places. Control characters are in no HTML."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return "".join(
        each if each >= " " or each in "\n\t" else "�"
        for each in str("" if value is None else value)
    )


def document(title: str, *parts: Child) -> str:
    """A whole page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(STYLE)),
    )
    body = tag("body", tag("main", *parts))
    return f"<!DOCTYPE html>\n{tag('html', head, Html(chr(10)), body, lang='en')}\n"
