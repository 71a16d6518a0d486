"""`typedrag report`: runs as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from typedrag.experiments.judges.pairwise import PairwiseComparison


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN…")
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The HTML file.")
@click.option("--title", default="", help="Title of the page. Default: the names of the runs.")
@click.option(
    "--pairwise",
    type=click.Path(path_type=Path),
    help="Output of typedrag judges pairwise. Default: pairwise.json beside the first RUN, if it exists.",
)
@click.option("--seed", default=0, show_default=True, help="Random seed of the resampling.")
def command(folders: tuple[Path, ...], out: Path, title: str, pairwise: Path | None, seed: int) -> None:
    """Write RUNs, finished or not, as one HTML page that needs no network.

    The page shows measures by subset and type, coverage, preferences, costs and failures, compares each
    run with the first, and shows the answers to every question side by side.
    """
    from typedrag.cli.opening import say
    from typedrag.experiments.report import write_report
    from typedrag.experiments.results import read_run

    runs = [read_run(folder) for folder in folders]
    write_report(runs, out, pairwise=_read_pairwise(pairwise, folders[0]), title=title, seed=seed)
    say(f"{len(runs)} run{'s' * (len(runs) > 1)}: {out}")


def _read_pairwise(named: Path | None, run: Path) -> PairwiseComparison | None:
    from typedrag.experiments.judges.pairwise import FILE, read_pairwise

    beside = run.resolve().parent / FILE
    if named is None and not beside.is_file():
        return None
    return read_pairwise(named or beside)
