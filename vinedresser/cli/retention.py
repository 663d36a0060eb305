"""`vinedresser gc`, `rm` and `pin`: remove runs that nobody needs, and keep others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vinedresser.cli.options import DEFAULT_STORE, RunArgument, check_directory
from vinedresser.errors import ConfigError, VinedresserError
from vinedresser.objects import parse_location

if TYPE_CHECKING:
    from vinedresser.tasks.retention import Cleaned

__all__ = ["gc", "pin", "rm"]

# Characters of a line of a terminal that a reason has at least.
_LEAST = 30


def gc(
    store: Annotated[
        str,
        typer.Argument(
            metavar="STORE",
            help="Directory of the runs or s3://bucket/prefix, or a retention.toml that says all.",
        ),
    ] = str(DEFAULT_STORE),
    *,
    older: Annotated[
        str, typer.Option(metavar="TIME", help='Only runs that ended so long ago: "30 d".')
    ] = "",
    keep: Annotated[int, typer.Option(min=0, help="Keep the newest so many runs.")] = 0,
    state: Annotated[
        str, typer.Option(metavar="STATE,...", help="Only runs that ended so: crashed,killed.")
    ] = "",
    size: Annotated[
        str,
        typer.Option(metavar="SIZE", help='Only until the store takes no more: "50 GB".'),
    ] = "",
    what: Annotated[
        str, typer.Option(help="What of the runs: runs, snapshots or checkpoints.")
    ] = "runs",
    delete: Annotated[bool, typer.Option("--delete", help="Remove it, not only list it.")] = False,
) -> None:
    """List what of a store is not needed any more; with --delete, remove it.

    Pinned runs stay, and those that have not ended, that MLflow does not know to have ended, of
    which a model is registered, or from which another run began. MLflow keeps its runs.
    """
    from vinedresser.tasks.config.retention_file import Policy, Retention, load_retention
    from vinedresser.tasks.retention import clean

    place = parse_location(store)
    if isinstance(place, Path) and place.suffix == ".toml" and place.is_file():
        if older or keep or state or size or what != "runs":
            raise ConfigError(f"{place}: says which runs; leave out all options but --delete")
        retention = load_retention(place)
    else:
        check_directory(place)
        states = [one.strip() for one in state.split(",") if one.strip()]
        policy = Policy.parsed("--", what=what, older=older, keep=keep, state=states, size=size)
        retention = Retention(place, policy, delete)
    found = clean(retention.store, retention.policy, delete=delete)
    _print_cleaned(found, delete=delete)
    sys.exit(1 if found.failed else 0)


def _print_cleaned(found: Cleaned, *, delete: bool) -> None:
    from vinedresser.cli.views.column_choice import fitted_table
    from vinedresser.cli.views.console import line_room, print_table, say
    from vinedresser.explain.formatting import count

    for location in found.completed:
        say(f"{location.name}   its removal, which was interrupted, is complete")
    listed = {one.location for one in found.candidates}
    for location, why in found.failed.items():
        if location not in listed:
            say(f"{location.name}   {why}", style="red")
    rows = []
    for one in found.candidates:
        said = f"stays: {one.kept}" if one.kept else "removed" if delete else ""
        why = found.failed.get(one.location, said)
        size = f"{one.bytes / 1e6:,.1f}"
        rows.append({"run": one.name, "ended": one.when, "MB": size, "why": why})
    if rows:
        headings = {"run": "run", "ended": "ended", "MB": "MB", "why": ""}
        room = line_room()
        folded = {} if room is None else {"why": _LEAST}
        fitted = fitted_table(
            headings, rows, room=room, dropped=["ended"], folded=folded, figures=["MB"]
        )
        print_table(fitted)
    removable = not delete and any(not one.kept for one in found.candidates)
    say(found.text + ("; --delete removes them" if removable else ""))
    if found.failed:
        say(f"{count(len(found.failed), 'run')} could not be read or removed", style="red")
    for reason, number in found.spared.items():
        say(f"{count(number, 'run')} {'stays' if number == 1 else 'stay'}: {reason}", style="dim")


def rm(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="The runs to remove.")],
) -> None:
    """Remove runs, unless there is a reason to keep them (see gc). MLflow keeps its runs."""
    from vinedresser.cli.views.console import say
    from vinedresser.tasks.retention import remove_named

    failed = 0
    for run in runs:
        try:
            found = remove_named(parse_location(run))
        except VinedresserError as error:
            say(str(error), style="red")
            failed += 1
        else:
            say(f"{found.location.name}   removed")
    sys.exit(1 if failed else 0)


def pin(
    run: RunArgument,
    *,
    why: Annotated[str, typer.Option(help="Why it is kept.")] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Let it be removed again.")] = False,
) -> None:
    """Keep a run for good: `vinedresser gc` does not remove it."""
    from vinedresser.cli.views.console import say
    from vinedresser.tasks import retention_reasons

    location = parse_location(run)
    if remove:
        retention_reasons.unpin(location)
        say(f"{location.name}   no longer pinned")
    else:
        retention_reasons.pin(location, why)
        say(f"{location.name}   pinned")
