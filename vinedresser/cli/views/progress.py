"""Progress of the runs of a store while they train."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from vinedresser.cli.views.beside import shown_beside
from vinedresser.cli.views.console import console, say, tell
from vinedresser.cli.views.latest_values import LatestValues, fitting
from vinedresser.cli.views.results import print_result, print_suspicions, retry_line
from vinedresser.errors import StoreError, VinedresserError
from vinedresser.infra.catalog.stores import places_in
from vinedresser.objects import Location, open_storage
from vinedresser.plain_text import visible
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import RemedyRecord, RestartRecord, RunRecord, read_record
from vinedresser.store.status import Status, run_status
from vinedresser.tasks.lifecycle.run_result import run_result

# Seconds between two polls of an object store, each of which costs requests.
_REMOTE_POLL = 2.0
# Characters of a bar, and of steps, time and state with the gaps between them.
_BAR, _FIXED = 41, 31
# Characters of a terminal from which on there are bars; a narrower one shows the values instead.
_BARS_FROM = 100


@contextmanager
def progress(store: Location) -> Iterator[None]:
    """Show the runs that appear in a store while the body runs.

    Draw bars on a terminal; elsewhere print a line when a run starts or ends.
    """
    earlier = set[Location](places_in(store))
    with shown_beside(_show_bars if console.is_terminal else _show_lines, store, earlier):
        yield


def _show_lines(store: Location, reported: set[Location], over: threading.Event) -> None:
    """Print a line when a run starts, and its result when it has ended."""
    started: set[Location] = set()
    for location, info, status in _polled(store, reported, over, pause=0.5):
        if location not in started and (status.step is not None or status.over):
            started.add(location)
            replaced = _replaced(info)
            if not tell(f"{info.name} started", run=info.name, retry=replaced or None):
                say(f"{info.name}   started{f'   {replaced}' if replaced else ''}")


def _replaced(info: RunRecord) -> str:
    """Return which run a run retries or begins again; "" for none."""
    if info.remedy:
        return retry_line(RemedyRecord.from_json(info.remedy))
    return RestartRecord.from_json(info.restart).description if info.restart else ""


def _show_bars(store: Location, reported: set[Location], over: threading.Event) -> None:
    """Draw a bar per run; the result of a run appears above the bars when it has ended."""
    columns = (
        TextColumn("{task.description}", markup=False),
        *([BarColumn()] if console.width >= _BARS_FROM else []),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}", markup=False),
        TextColumn("{task.fields[values]}", markup=False),
    )
    watched: dict[Location, LatestValues] = {}
    with Progress(*columns, console=console) as bars:
        rows: dict[Location, TaskID] = {}
        # An empty display would scroll, and the servers take a while to start.
        waiting = bars.add_task("starting Prefect and MLflow", total=None, state="", values="")
        for location, info, status in _polled(store, reported, over, pause=0.2):
            bars.update(waiting, visible=False)
            if location not in rows:
                rows[location] = bars.add_task(
                    visible(info.name), total=info.total_steps, state="", values=""
                )
            done = 0 if status.step is None else status.step + 1
            # A training with more steps than it declared has no known total.
            total = None if done > (info.total_steps or 0) else info.total_steps
            shown = ""
            # Values on an object store would cost requests at every poll.
            if isinstance(location, Path) and done and not status.over:
                bar = _BAR if console.width >= _BARS_FROM else 0
                room = console.width - len(info.name) - _FIXED - bar
                shown = _values(watched, location, done, total, room)
            bars.update(
                rows[location], completed=done, total=total, state=status.state, values=shown
            )
            if status.over:
                watched.pop(location, None)
                bars.stop_task(rows[location])


def _values(
    watched: dict[Location, LatestValues],
    location: Path,
    done: int,
    total: int | None,
    room: int,
) -> str:
    """Return the latest values of a run, as many as fit; "" if it cannot be read.

    Args:
        watched: what is known of the runs; the run is added.
        done: number of optimizer steps done.
        total: number of optimizer steps in the whole run, None if unknown.
    """
    try:
        if location not in watched:
            watched[location] = LatestValues(open_run(location))
        return fitting(watched[location].parts(done, total), room)
    except VinedresserError:
        # Removed or damaged meanwhile: the next poll reports it.
        return ""


def _polled(
    store: Location, reported: set[Location], over: threading.Event, *, pause: float
) -> Iterator[tuple[Location, RunRecord, Status]]:
    """Yield the state of each unreported run at every poll, and print what becomes known of it.

    That is what was suspicious before it began, and its result when it has ended.

    While a run trains, only its small records are read.

    Args:
        reported: runs to leave out; ended runs are added.
        over: ends the polling, after one last poll.
        pause: seconds between two polls of a directory.
    """
    begun = set[Location]()
    last = False
    while not last:
        last = over.wait(pause if isinstance(store, Path) else _REMOTE_POLL)
        for location in _unreported(store, reported):
            try:
                storage = open_storage(location)
                info = read_record(storage, RunRecord)
                if info is None:
                    continue
                status = run_status(storage)
                yield location, info, status
                if location not in begun and (status.step is not None or status.over):
                    begun.add(location)
                    print_suspicions(storage, info.name)
                if status.over:
                    reported.add(location)
                    print_result(run_result(location))
            except VinedresserError as error:
                if not isinstance(location, Path) and isinstance(error, StoreError):
                    # The upload reports that the store is unavailable; the next poll may reach it.
                    continue
                # The process that works on the run reports the error; there is nothing to show.
                reported.add(location)
                say(f"{location.name}: {error}", style="red")


def _unreported(store: Location, reported: set[Location]) -> list[Location]:
    """Return the places of possible runs; none while the store is unavailable."""
    try:
        return [location for location in places_in(store) if location not in reported]
    except StoreError:
        return []
