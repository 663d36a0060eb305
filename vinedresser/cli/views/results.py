"""How runs ended: the summary of each, and the table of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vinedresser.cli.views.console import console, figure, plain, plain_table, relative, say
from vinedresser.objects import Storage
from vinedresser.preflight.record import PreflightRecord
from vinedresser.rules.causes.root_cause import root_causes
from vinedresser.store.finding import Finding
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.records import RemedyRecord
from vinedresser.tasks.lifecycle.run_result import RemedyResult, RunResult
from vinedresser.tasks.lifecycle.settle import REPORT

__all__ = [
    "print_finding",
    "print_no_training",
    "print_remedied",
    "print_result",
    "print_suspicions",
    "results_table",
    "retry_line",
]

# Symptoms listed below their root cause; the report has all.
_MOST_SYMPTOMS = 3
# Notes on lost and damaged data in a row of the table.
_MOST_NOTES = 2
_STYLES = {
    "finished": "green",
    "running": "cyan",
    "stopped": "yellow",
    "crashed": "red",
    "killed": "red",
    "dead": "red",
    "unreadable": "red",
}
_NO_TRAINING = (
    "no training was seen, so nothing was captured: no Python process made a step of a torch "
    "optimizer, Keras or XGBoost, or changed tensors that a torch loss depends on (a process "
    "started with -I, -E or -S, or outside this environment, cannot be seen); add a Hook to the "
    "script"
)


def results_table(results: Sequence[RunResult]) -> Table:
    """Return the table that compares runs; `print_result` gives the full reasons."""
    table = plain_table()
    table.add_column("run", no_wrap=True)
    table.add_column("ended", no_wrap=True)
    for name in ("steps", "saved", "loss", "accuracy"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why")
    for run in results:
        accuracies = {key: one for key, one in run.metrics.items() if "accuracy" in key.lower()}
        table.add_row(
            run.name,
            _state(run),
            str(run.steps),
            "" if run.steps_saved is None else str(run.steps_saved),
            _first(run.losses),
            _first(accuracies),
            _why(run),
        )
    return table


def print_result(run: RunResult, *, to: Console = console) -> None:
    """Print how one run ended, and why."""
    # A training with more steps than it declared has no known total.
    of = f" of {run.total_steps}" if run.total_steps and run.steps <= run.total_steps else ""
    loss = f"loss {_first(run.losses)}   " if run.losses else ""
    line = plain(f"{run.name}   step {run.steps}{of}   {loss}")
    by = f" by {run.status.rule or run.status.by}" if run.status.by else ""
    say(line.append_text(_state(run)).append_text(plain(by)), to)
    if run.remedy is not None:
        say(f"  {retry_line(run.remedy)}", to)
    if run.preflight is not None:
        say(f"  pre-flight: {run.preflight.summary}", to)
    if run.stopping is not None:
        print_finding(run.stopping, to=to)
    elif run.status.state not in ("finished", "running"):
        say(f"  {run.status.reason}", to)
    if run.proof:
        say(f"  tried          {run.proof}", to)
    _print_other_findings(run, to)
    for note in run.notes:
        say(f"  {note}", to, style="red")
    where = [f"saved {run.steps_saved} of {run.total_steps} steps"] if run.steps_saved else []
    if isinstance(run.directory, Path):
        where.append(f"report {relative(run.directory / REPORT)}")
    else:
        where.append(f"run {run.directory}")
    if run.mlflow_run:
        where.append(f"mlflow {run.mlflow_run[:6]}")
    say("  " + "   ".join(where), to, style="dim")


def print_finding(finding: Finding, *, to: Console = console) -> None:
    """Print what a rule found, its likely cause, and what to try."""
    say(f"  {finding.rule} since step {finding.since}: {finding.seen}", to)
    say(f"  likely cause   {finding.cause}", to)
    say(f"  try            {finding.remedy}", to)


def print_suspicions(storage: Storage, name: str) -> None:
    """Print what the checks before a run found suspicious, if it had any.

    Args:
        storage: the run's storage.
        name: name of the run.

    Raises:
        StoreError: the storage refused.
    """
    # The result of the run names a damaged record.
    found = read_record_or_none(storage, PreflightRecord, PreflightRecord.KEY, [])
    for one in found.suspicious if found is not None else ():
        say(f"{name}   pre-flight: {one.check}: {one.evidence}", style="yellow")


def print_remedied(remedied: RemedyResult, to: Console) -> None:
    """Print in one line which correction cured a stopped run, or why none did."""
    first, cure = remedied.first, remedied.cure
    if cure is not None:
        compared = ", ".join(_compared(cure, first))
        verdict = f"cured by {remedied.change} ({cure.name})" + (compared and f": {compared}")
    elif remedied.attempts:
        verdict = f"not cured by {remedied.change}: {remedied.left}"
    else:
        verdict = f"not restarted: {remedied.left}"
    to.print(f"{first.name}: {verdict}", soft_wrap=True)


def print_no_training(to: Console, run: str = "") -> None:
    """Print that no training was seen.

    Args:
        to: the console.
        run: name of the run, if there are several.
    """
    of = f"{run}: " if run else ""
    to.print(f"vinedresser: {of}{_NO_TRAINING}", soft_wrap=True)


def retry_line(remedy: RemedyRecord) -> str:
    """Return which stopped run a run retries, from where, and what is different."""
    tried = f"; tried {remedy.tried}" if remedy.tried else ""
    why = f"{remedy.finding['rule']}{tried}"
    return f"retries {remedy.stopped} {remedy.beginning}: {remedy.change} ({why})"


def _print_other_findings(run: RunResult, to: Console) -> None:
    """Print a line for each finding besides the one that stopped the run, symptoms after causes."""
    for root in root_causes(run.findings):
        if root.finding is not run.stopping:
            say(f"  {root.finding.severity}: {root.finding.rule}: {root.finding.seen}", to)
        for symptom in root.symptoms[:_MOST_SYMPTOMS]:
            say(f"  symptom: {symptom.rule}: {symptom.seen}", to)
        more = len(root.symptoms) - _MOST_SYMPTOMS
        if more > 0:
            say(f"  symptoms: {more} more in the report", to)


def _state(run: RunResult) -> Text:
    return plain(run.status.state, _STYLES[run.status.state])


def _why(run: RunResult) -> str:
    """Return in a few words why a run ended early, and what data is lost or damaged."""
    why = ""
    if run.stopping is not None:
        why = run.stopping.rule
    elif run.status.state not in ("finished", "running"):
        why = run.status.rule or run.status.reason
    return "; ".join(filter(None, (why, *run.notes[:_MOST_NOTES], _more(run.notes))))


def _more(notes: Sequence[str]) -> str:
    """Return how many notes are left to `vinedresser show`."""
    more = len(notes) - _MOST_NOTES
    return f"{more} more: vinedresser show" if more > 0 else ""


def _first(values: Mapping[str, float]) -> str:
    return next((figure(value) for value in values.values()), "")


def _compared(cure: RunResult, first: RunResult) -> Iterator[str]:
    """Yield the last loss and the metrics of an attempt, compared with the first run's."""
    loss = dict(list(cure.losses.items())[:1])
    for values, before in ((loss, first.losses), (cure.metrics, first.metrics)):
        for name, value in values.items():
            against = f" against {figure(before[name])}" if name in before else ""
            yield f"{name} {figure(value)}{against}"
