"""`vinedresser copy`, `export` and `import`: runs and sweeps in other stores, and in one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from vinedresser.cli.options import DEFAULT_STORE, StoreArgument
from vinedresser.errors import VinedresserError
from vinedresser.objects import parse_location

__all__ = ["copy", "export_", "import_"]

_RunsArgument = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Runs, sweeps and prunings: directories or URLs."),
]


def copy(
    runs: _RunsArgument,
    *,
    to: Annotated[str, typer.Option(metavar="STORE", help="The other store.")],
) -> None:
    """Copy runs, sweeps and prunings that have ended into another store, also to and from S3.

    A sweep is copied with all of its runs. A copy that is interrupted is no run; the next copy
    completes it. MLflow's run stays that of the original.
    """
    from vinedresser.cli.views.console import say
    from vinedresser.tasks.transfer import copy_run

    store = parse_location(to)
    failed = 0
    for run in runs:
        try:
            say(f"{copy_run(parse_location(run), store)}")
        except VinedresserError as error:
            say(str(error), style="red")
            failed += 1
    sys.exit(1 if failed else 0)


def export_(
    runs: _RunsArgument,
    *,
    to: Annotated[Path, typer.Option(metavar="FILE", help="The file, such as runs.zip.")],
) -> None:
    """Write runs and sweeps that have ended to one file with checksums, a ZIP."""
    from vinedresser.cli.views.console import say
    from vinedresser.explain.formatting import count
    from vinedresser.tasks.transfer import export_runs

    written = export_runs([parse_location(run) for run in runs], to)
    say(f"{to}   {count(written.runs, 'run')}, {written.bytes / 1e6:,.1f} MB")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What export has written.")],
    store: StoreArgument = str(DEFAULT_STORE),
) -> None:
    """Write what a file has to a store, once all checksums were found to be right.

    Runs that are there already stay, so an import that was interrupted may be repeated.
    """
    from vinedresser.cli.views.console import say
    from vinedresser.tasks.transfer import import_runs

    for run, new in import_runs(file, parse_location(store)):
        say(f"{run}{'' if new else '   was there already'}")
