"""What each table, figure and headline of the five papers shows, what ours gives, and the verdict.

The page runs nothing: it reads the results of the other benchmarks. A row is decided where all of
its bars are met, or one is missed: reproduced; better, where ours is meant to be; differs, where
ours is further from the paper's figure than its bar allows; reversed, where an order of the paper's
comes out the other way round. What nothing shows yet has a row too, and says why.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from benchmarks.harness.bars import judge
from benchmarks.harness.report import Report, table, tabulate
from benchmarks.harness.session import Session
from benchmarks.kept import RESULTS, kept
from benchmarks.papers.autoscalers import CLOSER, ICCBDC, LANDAU, LI_KU
from benchmarks.papers.model import Looked, Paper, Verdict
from benchmarks.papers.srtm import SRTM
from srtm.report.result import Result

PAPERS = (SRTM, CLOSER, ICCBDC, LI_KU, LANDAU)
SOURCES = tuple(
    dict.fromkeys(each.benchmark for paper in PAPERS for row in paper.rows for each in row.shown)
)
"""The benchmarks that show rows, in the papers' order."""
DECIDED_PERCENT = 90.0


def run(session: Session) -> Report:
    return report(kept(RESULTS))


def report(results: Mapping[str, Result]) -> Report:
    """results: of the benchmarks, by name."""
    looked = {paper: [row.look(results) for row in paper.rows] for paper in PAPERS}
    rows = [each for rows in looked.values() for each in rows]
    decided = 100 * sum(each.verdict.decided for each in rows) / len(rows)
    return Report(
        settings={"rows": len(rows), "benchmarks": list(SOURCES)},
        figures={
            paper.name: [_document(each) for each in found] for paper, found in looked.items()
        },
        bars=[judge("rows that are decided, %", [decided], at_least=DECIDED_PERCENT)],
        tables=[_counts(looked), *(_table(paper, found) for paper, found in looked.items())],
        notes=["a row that several benchmarks show counts as what says most against ours"],
    )


def _document(looked: Looked) -> dict[str, Any]:
    return {
        "where": looked.row.where,
        "verdict": looked.verdict,
        "found": [{"how": f.how, "ours": f.ours, "verdict": f.verdict} for f in looked.found],
    }


def _counts(looked: Mapping[Paper, list[Looked]]) -> Table:
    counted = [
        (paper.name, Counter(each.verdict for each in found)) for paper, found in looked.items()
    ]
    counted.append(("all", sum((count for _, count in counted), Counter())))
    return tabulate(
        "verdicts",
        counted,
        ("paper", lambda row: row[0]),
        ("rows", lambda row: str(row[1].total())),
        *((verdict.value, lambda row, v=verdict: str(row[1][v])) for verdict in Verdict),
    )


def _table(paper: Paper, looked: list[Looked]) -> Table:
    made = table(f"{paper.name}: {paper.title}", "where", "the paper", "how", "ours", "verdict", "")
    for each in looked:
        first = (each.row.where, each.row.says)
        why = each.row.why
        for found in each.found:
            made.add_row(*first, found.how, found.ours, found.verdict.value, why)
            first, why = ("", ""), ""
    return made
