"""What the terminal says: progress while runs train, the story of each, the table at the end."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from vinedresser.capture.finding import Finding
from vinedresser.errors import VinedresserError
from vinedresser.tasks.outcome import Outcome, outcome
from vinedresser.tasks.settle import REPORT
from vinedresser.tasks.store import run_directories

__all__ = [
    "console",
    "outcome_table",
    "print_finding",
    "print_outcome",
    "progress",
    "relative",
]

console = Console(highlight=False)

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


def print_outcome(entry: Outcome) -> None:
    """Print the story of one run that has ended."""
    of = f" of {entry.total_steps}" if entry.total_steps else ""
    loss = f"loss {_figure(entry.losses)}   " if entry.losses else ""
    line = Text(f"{entry.name}   step {entry.steps}{of}   {loss}")
    by = f" by {entry.status.rule or entry.status.by}" if entry.status.by else ""
    _say(line.append_text(_state(entry)).append(by))
    finding = entry.stopping
    if finding is not None:
        print_finding(finding)
    elif entry.status.state not in ("finished", "running"):
        _say(Text(f"  {entry.status.reason}"))
    for other in entry.findings:
        if other is not finding:
            _say(Text(f"  {other.severity}: {other.rule}: {other.seen}"))
    where = [f"saved {entry.steps_saved} of {entry.total_steps} steps"] if entry.steps_saved else []
    where.append(f"report {relative(entry.directory / REPORT)}")
    if entry.mlflow_run:
        where.append(f"mlflow {entry.mlflow_run[:6]}")
    _say(Text("  " + "   ".join(where), style="dim"))


def print_finding(finding: Finding) -> None:
    """Print what a rule found, why it may be, and what to try."""
    _say(Text(f"  {finding.rule} since step {finding.since}: {finding.seen}"))
    _say(Text(f"  likely cause   {finding.cause}"))
    _say(Text(f"  try            {finding.remedy}"))


def _say(line: Text) -> None:
    """Print a line; only a terminal breaks it, a file or pipe gets it whole."""
    console.print(line, soft_wrap=not console.is_terminal)


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
    told: dict[Path, str] = {}
    last_look = False
    while not last_look:
        last_look = over.wait(0.5)
        for entry in _outcomes(store, before, told):
            begun = entry.steps > 0 or entry.status.state != "running"
            if begun and entry.directory not in told:
                told[entry.directory] = "running"
                _say(Text(f"{entry.name}   started"))
            if entry.status.state != "running":
                told[entry.directory] = entry.status.state
                print_outcome(entry)


def _show_bars(store: Path, before: set[Path], over: threading.Event) -> None:
    """Draw a bar per run; the story of a run goes above the bars when it has ended."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[state]}"),
    )
    told: dict[Path, str] = {}
    with Progress(*columns, console=console) as bars:
        rows = {}
        # An empty display would scroll; and the servers take their time to start.
        waiting = bars.add_task("starting Prefect and MLflow", total=None, state="")
        last_look = False
        while not last_look:
            last_look = over.wait(0.2)
            for entry in _outcomes(store, before, told):
                bars.update(waiting, visible=False)
                if entry.directory not in rows:
                    rows[entry.directory] = bars.add_task(
                        entry.name, total=entry.total_steps, state=""
                    )
                bars.update(
                    rows[entry.directory],
                    completed=entry.steps,
                    state=entry.status.state,
                )
                if entry.status.state != "running":
                    told[entry.directory] = entry.status.state
                    bars.stop_task(rows[entry.directory])
                    print_outcome(entry)


def _outcomes(store: Path, before: set[Path], told: Mapping[Path, str]) -> Iterator[Outcome]:
    """Yield the new runs of a store whose end has not been told."""
    for directory in run_directories(store):
        if directory in before or told.get(directory, "running") != "running":
            continue
        try:
            yield outcome(directory)
        except VinedresserError as error:
            # Whoever works on the run reports it; the display only has nothing to show.
            console.print(Text(f"{directory.name}: {error}", style="red"))


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
