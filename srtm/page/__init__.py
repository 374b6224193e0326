"""Pages that need no network and no JavaScript: HTML, tables and charts as SVG, all in one file."""

from srtm.page.bars import Bar, bar_chart
from srtm.page.html import Html, document, join, tag
from srtm.page.lines import Line, line_chart
from srtm.page.raster import Lane, raster
from srtm.page.spans import Span, SpanRow, span_chart
from srtm.page.tables import table

__all__ = [
    "Bar",
    "Html",
    "Lane",
    "Line",
    "Span",
    "SpanRow",
    "bar_chart",
    "document",
    "join",
    "line_chart",
    "raster",
    "span_chart",
    "table",
    "tag",
]
