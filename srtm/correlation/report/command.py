"""`srtm correlate report`."""

from pathlib import Path

import click

from srtm.errors import UsageError


@click.command("report")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The trace that it was found in [default: where it was then].",
)
@click.option("--topic", help="This topic alone.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("groups.html"),
    show_default=True,
    help="The page.",
)
def report(folder: Path, trace: Path | None, topic: str | None, out: Path) -> None:
    """Make one HTML page of the result in DIR, which needs no network.

    \b
      srtm correlate run --trace TRACE --out DIR --window 10m
      srtm correlate report DIR

    Groups come from DIR; their bursts, r-b curves, statistics, and what spreading them would save
    in token wait are computed from the trace by Spark. Where the trace is gone the page does
    without, and says so.
    """
    from srtm.correlation.report.shown import shown  # pyarrow
    from srtm.correlation.session import spark_session

    found = shown(folder, topic)
    place = trace or Path(str(found.run.get("trace", "")))
    missing, figures = "", {}
    if trace is None and not place.is_dir():
        missing = (
            f"The trace {place} is gone, so that bursts, r-b curves, waits and statistics are not "
            "shown: srtm correlate report --trace DIR names another place."
        )
        click.echo(missing, err=True)
    else:
        with spark_session() as spark:
            from srtm.correlation.report.figures import figures as computed
            from srtm.correlation.trace import open_trace

            figures = computed(open_trace(place, skip=trace is None).frame(spark), found)
    from srtm.correlation.report.page import page

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page(found, figures, missing), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}") from None
    click.echo(f"wrote {out}")
