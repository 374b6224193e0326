"""Results that are kept in the repository, and the page that is made from them."""

from pathlib import Path

from benchmarks.catalogue import BENCHMARKS
from srtm.report.markdown import markdown
from srtm.report.result import Result, read
from srtm.text.errors import UsageError

_HERE = Path(__file__).parent
RESULTS = _HERE / "results"
PAGE = _HERE / "RESULTS.md"
_ABOUT = (
    "Made from `results/` by `python -m benchmarks keep`; [README](README.md) says how they are "
    "measured."
)


def keep(file: Path, folder: Path = RESULTS) -> Path:
    """Write what people read of a run's NAME.json into `folder`. Every figure stays out: they are
    megabytes. Raises UsageError where `file` is no result."""
    found = read(file)
    folder.mkdir(exist_ok=True)
    target = folder / f"{file_name(found.benchmark)}.json"
    target.write_text(found.model_dump_json(indent=1, exclude_none=True) + "\n")
    return target


def file_name(benchmark: str) -> str:
    """Raises UsageError for one that the catalogue does not have: a name is a path here."""
    if benchmark not in BENCHMARKS:
        raise UsageError(f"{benchmark!r}: no benchmark of that name; see python -m benchmarks list")
    return benchmark


def kept(folder: Path = RESULTS) -> dict[str, Result]:
    """The results in a folder, by name."""
    return {file.stem: read(file) for file in sorted(folder.glob("*.json"))}


def page(folder: Path = RESULTS) -> str:
    """Markdown: all results, in the catalogue's order."""
    found = kept(folder)
    return markdown([found[name] for name in BENCHMARKS if name in found], "Results", _ABOUT)
