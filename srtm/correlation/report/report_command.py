"""`srtm correlate report`."""

from pathlib import Path

import click

from srtm.text.errors import UnavailableError, UsageError


@click.command("report")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Trace of the result [default: the folder that srtm correlate run read].",
)
@click.option("--topic", help="Only this topic.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("groups.html"),
    show_default=True,
    help="File for the page.",
)
def report(folder: Path, trace: Path | None, topic: str | None, out: Path) -> None:
    """Make one HTML page, which needs no network, from the result in DIR.

    \b
      srtm correlate run --trace TRACE --out DIR --window 10m
      srtm correlate report DIR

    Groups come from DIR. Spark computes from the trace their bursts, r-b curves, statistics, and
    the token wait that spreading them would save. If the trace is gone, the page leaves these out
    and says so.
    """
    try:
        from srtm.correlation.report.shown import shown
    except ImportError:
        raise UnavailableError("PyArrow is not installed: pip install 'srtm[spark]'") from None
    from srtm.correlation.report.page import page
    from srtm.correlation.session import spark_session

    found = shown(folder, topic)
    place = trace or found.run.trace
    missing, figures = "", {}
    if trace is None and not place.is_dir():
        missing = (
            f"The trace {place} is gone, so that bursts, r-b curves, waits and statistics are not "
            "shown: srtm correlate report --trace DIR names another place."
        )
        click.echo(missing, err=True)
    else:
        with spark_session() as spark:
            from srtm.correlation.faults import one_line
            from srtm.correlation.report.computed import computed
            from srtm.correlation.trace import open_trace

            there = open_trace(place, skip=bool(found.run.left_out))
            with one_line(place):
                figures = computed(there.frame(spark), found)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page(found, figures, missing), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}") from None
    click.echo(f"wrote {out}")
