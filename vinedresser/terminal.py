"""What the terminal says: progress while runs train, the story of each, the table at the end."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from vinedresser.capture.finding import Finding
from vinedresser.capture.store.status import Status, run_status
from vinedresser.errors import VinedresserError
from vinedresser.infra.run_directory import RunRecord, read_record
from vinedresser.infra.storage import LocalStorage
from vinedresser.tasks.outcome import Outcome, outcome
from vinedresser.tasks.settle import REPORT
from vinedresser.tasks.store import run_directories

__all__ = [
    "console",
    "error_console",
    "outcome_table",
    "print_finding",
    "print_outcome",
    "progress",
    "relative",
]

console = Console(highlight=False)
# What is said beside the output of a script, which stays as it is.
error_console = Console(highlight=False, stderr=True)

_STYLES = {
    "finished": "green",
    "running": "cyan",
    "stopped": "yellow",
    "crashed": "red",
    "killed": "red",
    "dead": "red",
}


def outcome_table(outcomes: Sequence[Outcome]) -> Table:
    """Return the table that sets runs side by side; the reasons in full are in their stories."""
    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("run", no_wrap=True)
    table.add_column("ended", no_wrap=True)
    for name in ("steps", "saved", "loss", "accuracy"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why")
    for entry in outcomes:
        table.add_row(
            entry.name,
            _state(entry),
            str(entry.steps),
            "" if entry.steps_saved is None else str(entry.steps_saved),
            *(_figure(values) for values in (entry.losses, _accuracy(entry.metrics))),
            _why(entry),
        )
    return table


def _state(entry: Outcome) -> Text:
    """Return how a run stands, in its colour."""
    return Text(entry.status.state, style=_STYLES[entry.status.state])


def _why(entry: Outcome) -> str:
    """Return in a few words why a run ended before its time."""
    if entry.stopping is not None:
        return entry.stopping.rule
    if entry.status.state in ("finished", "running"):
        return ""
    return entry.status.rule or entry.status.reason


def print_outcome(entry: Outcome, *, to: Console = console) -> None:
    """Print the story of one run that has ended."""
    of = f" of {entry.total_steps}" if entry.total_steps else ""
    loss = f"loss {_figure(entry.losses)}   " if entry.losses else ""
    line = Text(f"{entry.name}   step {entry.steps}{of}   {loss}")
    by = f" by {entry.status.rule or entry.status.by}" if entry.status.by else ""
    _say(line.append_text(_state(entry)).append(by), to)
    finding = entry.stopping
    if finding is not None:
        print_finding(finding, to=to)
    elif entry.status.state not in ("finished", "running"):
        _say(Text(f"  {entry.status.reason}"), to)
    for other in entry.findings:
        if other is not finding:
            _say(Text(f"  {other.severity}: {other.rule}: {other.seen}"), to)
    where = [f"saved {entry.steps_saved} of {entry.total_steps} steps"] if entry.steps_saved else []
    if isinstance(entry.directory, Path):
        where.append(f"report {relative(entry.directory / REPORT)}")
    else:
        where.append(f"run {entry.directory}")
    if entry.mlflow_run:
        where.append(f"mlflow {entry.mlflow_run[:6]}")
    _say(Text("  " + "   ".join(where), style="dim"), to)


def print_finding(finding: Finding, *, to: Console = console) -> None:
    """Print what a rule found, why it may be, and what to try."""
    _say(Text(f"  {finding.rule} since step {finding.since}: {finding.seen}"), to)
    _say(Text(f"  likely cause   {finding.cause}"), to)
    _say(Text(f"  try            {finding.remedy}"), to)


def _say(line: Text, to: Console = console) -> None:
    """Print a line; only a terminal breaks it, a file or pipe gets it whole."""
    to.print(line, soft_wrap=not to.is_terminal)


@contextmanager
def progress(store: Path) -> Iterator[None]:
    """Show the runs that appear in a store while the body runs.

    Bars on a terminal; elsewhere a plain line whenever a run begins or ends.
    """
    before = set(run_directories(store))
    over = threading.Event()
    show = _show_bars if console.is_terminal else _show_lines
    thread = threading.Thread(target=show, args=(store, before, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show_lines(store: Path, before: set[Path], over: threading.Event) -> None:
    """Print a line when a run begins, and its story when it has ended."""
    begun: set[Path] = set()
    told = set(before)
    last_look = False
    while not last_look:
        last_look = over.wait(0.5)
        for directory, info, status in _glances(store, told):
            if directory not in begun and (status.step is not None or status.over):
                begun.add(directory)
                _say(Text(f"{info.name}   started"))


def _show_bars(store: Path, before: set[Path], over: threading.Event) -> None:
    """Draw a bar per run; the story of a run goes above the bars when it has ended."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}"),
    )
    told = set(before)
    with Progress(*columns, console=console) as bars:
        rows: dict[Path, TaskID] = {}
        # An empty display would scroll; and the servers take their time to start.
        waiting = bars.add_task("starting Prefect and MLflow", total=None, state="")
        last_look = False
        while not last_look:
            last_look = over.wait(0.2)
            for directory, info, status in _glances(store, told):
                bars.update(waiting, visible=False)
                if directory not in rows:
                    rows[directory] = bars.add_task(info.name, total=info.total_steps, state="")
                done = 0 if status.step is None else status.step + 1
                bars.update(rows[directory], completed=done, state=status.state)
                if status.over:
                    bars.stop_task(rows[directory])


def _glances(store: Path, told: set[Path]) -> Iterator[tuple[Path, RunRecord, Status]]:
    """Yield how the runs stand whose end has not been told; then tell the ends.

    Only the small records of a run are read as long as it trains, however long that is.
    """
    for directory in run_directories(store):
        if directory in told:
            continue
        try:
            storage = LocalStorage(directory)
            info, status = read_record(storage, RunRecord), run_status(storage)
            if info is None:
                continue
            yield directory, info, status
            if status.over:
                told.add(directory)
                print_outcome(outcome(directory))
        except VinedresserError as error:
            # Whoever works on the run reports it; the display only has nothing to show.
            told.add(directory)
            _say(Text(f"{directory.name}: {error}", style="red"))


def _figure(values: Mapping[str, float]) -> str:
    """Return the first value, to three digits."""
    value = next(iter(values.values()), None)
    if value is None:
        return ""
    return f"{value:.3g}" if math.isfinite(value) else str(value)


def _accuracy(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metric that is an accuracy."""
    return {name: value for name, value in metrics.items() if "accuracy" in name.lower()}


def relative(path: Path) -> Path:
    """Return a path as one would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
