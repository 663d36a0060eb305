"""What the terminal says: progress while runs train, the story of each, the table at the end."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath

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

from vinedresser.errors import StoreError, VinedresserError
from vinedresser.rules.base import Rule
from vinedresser.rules.root_cause import root_causes
from vinedresser.rules.rule_check import RuleCheck
from vinedresser.store.finding import Finding
from vinedresser.store.records import RemedyRecord, RunRecord, read_record
from vinedresser.store.status import Status, run_status
from vinedresser.store.storage import open_storage
from vinedresser.tasks.lifecycle.run_result import RunResult, run_result
from vinedresser.tasks.lifecycle.settle import REPORT
from vinedresser.tasks.stores import places_in

__all__ = [
    "console",
    "error_console",
    "results_table",
    "print_finding",
    "print_result",
    "print_trial",
    "progress",
    "relative",
    "rules_table",
]

console = Console(highlight=False)
# What is said beside the output of a script, which stays as it is.
error_console = Console(highlight=False, stderr=True)

# Seconds between two looks at the runs on an object store, of which each costs requests.
_FAR_LOOK = 2.0

# Of what a fault has brought about, so many are told; the report has all.
_MOST_SYMPTOMS = 3

_STYLES = {
    "finished": "green",
    "running": "cyan",
    "stopped": "yellow",
    "crashed": "red",
    "killed": "red",
    "dead": "red",
}


def results_table(outcomes: Sequence[RunResult]) -> Table:
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


def _state(entry: RunResult) -> Text:
    """Return how a run stands, in its colour."""
    return Text(entry.status.state, style=_STYLES[entry.status.state])


def _why(entry: RunResult) -> str:
    """Return in a few words why a run ended before its time."""
    if entry.stopping is not None:
        return entry.stopping.rule
    if entry.status.state in ("finished", "running"):
        return ""
    return entry.status.rule or entry.status.reason


def print_result(entry: RunResult, *, to: Console = console) -> None:
    """Print the story of one run that has ended."""
    of = f" of {entry.total_steps}" if entry.total_steps else ""
    loss = f"loss {_figure(entry.losses)}   " if entry.losses else ""
    line = Text(f"{entry.name}   step {entry.steps}{of}   {loss}")
    by = f" by {entry.status.rule or entry.status.by}" if entry.status.by else ""
    _say(line.append_text(_state(entry)).append(by), to)
    if entry.remedy is not None:
        _say(Text(f"  {_in_place(entry.remedy)}"), to)
    finding = entry.stopping
    if finding is not None:
        print_finding(finding, to=to)
    elif entry.status.state not in ("finished", "running"):
        _say(Text(f"  {entry.status.reason}"), to)
    _print_others(entry, to)
    where = [f"saved {entry.steps_saved} of {entry.total_steps} steps"] if entry.steps_saved else []
    if isinstance(entry.directory, Path):
        where.append(f"report {relative(entry.directory / REPORT)}")
    else:
        where.append(f"run {entry.directory}")
    if entry.mlflow_run:
        where.append(f"mlflow {entry.mlflow_run[:6]}")
    _say(Text("  " + "   ".join(where), style="dim"), to)


def _print_others(entry: RunResult, to: Console) -> None:
    """Print in one line each what was found besides that for which a run was stopped."""
    finding = entry.stopping
    roots = root_causes(entry.findings)
    brought = next((root.symptoms for root in roots if root.finding is finding), ())
    for other in brought[:_MOST_SYMPTOMS]:
        _say(Text(f"  with it: {other.rule}: {other.seen}"), to)
    more = len(brought) - _MOST_SYMPTOMS
    if more > 0:
        _say(Text(f"  with it: {more} more, in the report"), to)
    for other in entry.findings:
        if other is not finding and other not in brought:
            _say(Text(f"  {other.severity}: {other.rule}: {other.seen}"), to)


def _in_place(remedy: RemedyRecord) -> str:
    """Return in words what is different in a run that takes the place of a stopped one."""
    return (
        f"in the place of {remedy.stopped}, {remedy.beginning}: {remedy.change} "
        f"({remedy.finding['rule']})"
    )


def print_finding(finding: Finding, *, to: Console = console) -> None:
    """Print what a rule found, why it may be, and what to try."""
    _say(Text(f"  {finding.rule} since step {finding.since}: {finding.seen}"), to)
    _say(Text(f"  likely cause   {finding.cause}"), to)
    _say(Text(f"  try            {finding.remedy}"), to)


def rules_table(rules: Mapping[str, type[Rule]]) -> Table:
    """Return the table of the rules: what each finds, in one line, and what follows."""
    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("rule", "severity", "finds"):
        table.add_column(name, no_wrap=name != "finds")
    for name, rule in rules.items():
        table.add_row(name, rule.severity, (inspect.getdoc(rule) or "").partition("\n")[0])
    return table


def print_trial(trial: RuleCheck, *, to: Console = console) -> None:
    """Print what rules found in a recorded run, and how they behaved."""
    each = 1e6 * trial.seconds / trial.steps if trial.steps else 0.0
    names = ", ".join(trial.rules)
    _say(Text(f"{trial.run}: {names}: {trial.steps} steps, {each:.0f} us each"), to)
    for finding in trial.findings:
        _say(Text(f"  {finding.severity} at step {finding.step}"), to)
        print_finding(finding, to=to)
    if not trial.findings:
        _say(Text("  found nothing"), to)
    if not trial.same:
        said = "  found another thing when shown the same steps again: it keeps something elsewhere"
        _say(Text(said, style="red"), to)


def _say(line: Text, to: Console = console) -> None:
    """Print a line; only a terminal breaks it, a file or pipe gets it whole."""
    to.print(line, soft_wrap=not to.is_terminal)


@contextmanager
def progress(store: Path | str) -> Iterator[None]:
    """Show the runs that appear in a store while the body runs.

    Bars on a terminal; elsewhere a plain line whenever a run begins or ends.
    """
    before = set[Path | str](places_in(store))
    over = threading.Event()
    show = _show_bars if console.is_terminal else _show_lines
    thread = threading.Thread(target=show, args=(store, before, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show_lines(store: Path | str, before: set[Path | str], over: threading.Event) -> None:
    """Print a line when a run begins, and its story when it has ended."""
    begun: set[Path | str] = set()
    pause = 0.5 if isinstance(store, Path) else _FAR_LOOK
    told = set(before)
    last_look = False
    while not last_look:
        last_look = over.wait(pause)
        for directory, info, status in _glances(store, told):
            if directory not in begun and (status.step is not None or status.over):
                begun.add(directory)
                remedy = RemedyRecord.from_json(info.remedy) if info.remedy else None
                changed = f"   {_in_place(remedy)}" if remedy is not None else ""
                _say(Text(f"{info.name}   started{changed}"))


def _show_bars(store: Path | str, before: set[Path | str], over: threading.Event) -> None:
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
        rows: dict[Path | str, TaskID] = {}
        pause = 0.2 if isinstance(store, Path) else _FAR_LOOK
        # An empty display would scroll; and the servers take their time to start.
        waiting = bars.add_task("starting Prefect and MLflow", total=None, state="")
        last_look = False
        while not last_look:
            last_look = over.wait(pause)
            for directory, info, status in _glances(store, told):
                bars.update(waiting, visible=False)
                if directory not in rows:
                    rows[directory] = bars.add_task(info.name, total=info.total_steps, state="")
                done = 0 if status.step is None else status.step + 1
                bars.update(rows[directory], completed=done, state=status.state)
                if status.over:
                    bars.stop_task(rows[directory])


def _glances(
    store: Path | str, told: set[Path | str]
) -> Iterator[tuple[Path | str, RunRecord, Status]]:
    """Yield how the runs stand whose end has not been told; then tell the ends.

    Only the small records of a run are read as long as it trains, however long that is.
    """
    for location in _untold(store, told):
        try:
            storage = open_storage(location)
            info = read_record(storage, RunRecord)
            if info is None:
                continue
            status = run_status(storage)
            yield location, info, status
            if status.over:
                told.add(location)
                print_result(run_result(location))
        except VinedresserError as error:
            if isinstance(location, str) and isinstance(error, StoreError):
                # The store is away, which its upload says; the next look may find it again.
                continue
            # Whoever works on the run reports it; the display only has nothing to show.
            told.add(location)
            _say(Text(f"{PurePath(location).name}: {error}", style="red"))


def _untold(store: Path | str, told: set[Path | str]) -> list[Path | str]:
    """Return where there may be runs whose end has not been told; none while the store is away."""
    try:
        return [location for location in places_in(store) if location not in told]
    except StoreError:
        return []


def _figure(values: Mapping[str, float]) -> str:
    """Return the first value, to three digits."""
    value = next(iter(values.values()), None)
    if value is None:
        return ""
    return f"{value:.3g}" if math.isfinite(value) else str(value)


def _accuracy(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metric that is an accuracy."""
    return {name: value for name, value in metrics.items() if "accuracy" in name.lower()}


def relative(path: Path | str) -> Path | str:
    """Return a path as one would type it here; a URL is one already."""
    if isinstance(path, str):
        return path
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
