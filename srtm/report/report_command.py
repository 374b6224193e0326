"""`srtm report`."""

from pathlib import Path

import click

from srtm.report.markdown import markdown
from srtm.report.page import page
from srtm.report.result import read_all
from srtm.text.errors import UsageError

HTML, MARKDOWN = "report.html", "report.md"


@click.command("report")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help=f"Where {HTML} and {MARKDOWN} go [default: DIR itself].",
)
@click.option("--title", default="Results", show_default=True, help="Headline.")
def report(folder: Path, out: Path | None, title: str) -> None:
    """Make a page of the benchmark results in DIR.

    \b
      python -m benchmarks run placement --quick
      srtm report out/benchmarks

    DIR holds NAME.json, as the benchmarks write them, and their plots NAME.png. The page needs no
    network and no JavaScript. It leaves out a file that is no result, and names it.
    """
    results, faults = read_all(folder)
    place = out or folder
    for name, made in {
        HTML: page(results, faults, title),
        MARKDOWN: markdown(results, title, "Made by `srtm report`."),
    }.items():
        try:
            place.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(made, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--out {place}: {name}: {error.strerror}") from None
        click.echo(f"wrote {place / name}")
    for line in faults:
        click.echo(f"left out: {line}", err=True)
    for each in results:
        for bar in each.bars:
            if bar.met is False:
                click.echo(f"missed: {each.benchmark}: {bar.name}")
