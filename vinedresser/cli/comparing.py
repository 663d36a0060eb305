"""`vinedresser compare`: compare runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from vinedresser.errors import ConfigError

if TYPE_CHECKING:
    from vinedresser.explain.comparison.ranking import Direction

_DIRECTIONS = ("maximize", "minimize")


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Runs, or a store with them; s3://bucket/prefix."),
    ],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The page to write.")] = Path(
        "compare.html"
    ),
    metric: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Rank by this metric or loss, such as eval/accuracy."),
    ] = None,
    direction: Annotated[
        str | None,
        typer.Option(help="maximize or minimize (default: by the name of the metric)."),
    ] = None,
    log: Annotated[
        bool, typer.Option("--log", help="Also upload the page to the parent run in MLflow.")
    ] = False,
) -> None:
    """Compare runs: results, findings, parameters, and when they part.

    Writes a self-contained page and prints a table, the best run first.
    """
    from vinedresser.cli.views.comparison import log_comparison, print_comparison
    from vinedresser.explain.comparison import compare as compare_runs
    from vinedresser.explain.reports.comparison.report import write_comparison

    if direction is not None and direction not in _DIRECTIONS:
        raise ConfigError(f"--direction {direction}: give maximize or minimize")
    found = compare_runs(runs, metric=metric, direction=cast("Direction | None", direction))
    page = write_comparison(found, output)
    print_comparison(found, page)
    if log:
        log_comparison(found, page)
