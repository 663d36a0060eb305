"""`vinedresser gc`, `rm` and `pin`: remove runs that nobody needs, and keep others."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Annotated, get_args

import typer

from vinedresser.cli.options import DEFAULT_STORE, RunArgument, StoreArgument, check_directory
from vinedresser.errors import ConfigError, TrackingError, VinedresserError, did_you_mean
from vinedresser.objects import parse_location
from vinedresser.quantities import parse_size, parse_time

__all__ = ["gc", "pin", "rm"]


def gc(
    store: StoreArgument = str(DEFAULT_STORE),
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
    from vinedresser.cli.views.console import console, plain_table, say
    from vinedresser.explain.formatting import count
    from vinedresser.tasks.retention import Policy, What, candidates, complete, remove

    place = parse_location(store)
    check_directory(place)
    kinds: tuple[What, ...] = get_args(What)
    kind = next((one for one in kinds if one == what), None)
    if kind is None:
        raise ConfigError(f"--what {what!r}: {', '.join(kinds)}{did_you_mean(what, kinds)}")
    policy = Policy(kind, _time(older), keep, _states(state), _size(size))
    for location in complete(place) if delete else ():
        say(f"{location.name}   its removal, which was interrupted, is complete")
    spared = Counter[str]()
    found = candidates(place, policy, spared)
    failed = 0
    table = plain_table()
    for heading in ("run", "ended", "MB", ""):
        table.add_column(heading, justify="right" if heading == "MB" else "left")
    for candidate in found:
        said = f"stays: {candidate.kept}" if candidate.kept else ""
        if delete and not candidate.kept:
            try:
                remove(candidate, kind)
                said = "removed"
            except (ConfigError, TrackingError) as error:
                said, failed = str(error), failed + 1
        ended = time.strftime("%Y-%m-%d %H:%M", time.localtime(candidate.ended))
        table.add_row(candidate.location.name, ended, f"{candidate.bytes / 1e6:,.1f}", said)
    if found:
        console.print(table)
    chosen = [candidate for candidate in found if not candidate.kept]
    freed = sum(candidate.bytes for candidate in chosen) / 1e6
    of = "" if kind == "runs" else f" of their {kind}"
    ending = "" if delete else "; --delete removes them"
    say(f"{count(len(chosen), 'run')}{of}, {freed:,.1f} MB" + (ending if chosen else ""))
    for reason, number in spared.items():
        say(f"{count(number, 'run')} {'stays' if number == 1 else 'stay'}: {reason}", style="dim")
    sys.exit(1 if failed else 0)


def rm(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="The runs to remove.")],
) -> None:
    """Remove runs, unless there is a reason to keep them (see gc). MLflow keeps its runs."""
    from vinedresser.cli.views.console import say
    from vinedresser.tasks.retention import named, remove

    failed = 0
    for run in runs:
        try:
            found = named(parse_location(run))
            remove(found, "runs")
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
    from vinedresser.tasks import retention

    location = parse_location(run)
    if remove:
        retention.unpin(location)
        say(f"{location.name}   no longer pinned")
    else:
        retention.pin(location, why)
        say(f"{location.name}   pinned")


def _time(given: str) -> float:
    try:
        return parse_time(given) if given else 0.0
    except ValueError as error:
        raise ConfigError(f"--older: {error}") from error


def _states(given: str) -> list[str]:
    from vinedresser.store.status import RunState

    states = [one.strip() for one in given.split(",") if one.strip()]
    for one in states:
        if one not in (known := get_args(RunState)):
            raise ConfigError(f"--state {one!r}: {', '.join(known)}{did_you_mean(one, known)}")
    return states


def _size(given: str) -> int | None:
    try:
        return parse_size(given) if given else None
    except ValueError as error:
        raise ConfigError(f"--size: {error}") from error
