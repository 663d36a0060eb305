"""How runs ended: the summary of each, and the table of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vinedresser.cli.views.column_choice import fitted_table
from vinedresser.cli.views.console import console, figure, plain, relative, say, tell
from vinedresser.explain.verdicts import Verdict
from vinedresser.objects import Storage
from vinedresser.plain_text import visible
from vinedresser.preflight.record import PreflightRecord
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
# Columns of the table that a narrow terminal leaves out, the first first, and those with numbers.
_DROPPED = ("saved", "accuracy", "steps", "loss", "ended")
_FIGURES = ("steps", "saved", "loss", "accuracy")
# Characters that a folded column has at least.
_FOLDED = 24
# Colours of the tones of verdicts.
_STYLES = {
    "good": "green",
    "info": "cyan",
    "warning": "yellow",
    "stop": "yellow",
    "bad": "red",
    "muted": "",
}
# Levels of log lines by tone of the verdict.
_LEVELS = {"warning": "warning", "stop": "warning", "bad": "error"}
_NO_TRAINING = (
    "no training was seen, so nothing was captured: no Python process made a step of a torch "
    "optimizer, Keras or XGBoost, or changed tensors that a torch loss depends on (a process "
    "started with -I, -E or -S, or outside this environment, cannot be seen); add a Hook to the "
    "script"
)


def results_table(results: Sequence[RunResult], room: int | None = None) -> Table:
    """Return the table that compares runs; `print_result` gives the full reasons.

    Args:
        room: characters of a line; a narrow one leaves out columns, but never the verdict. None:
            all columns.
    """
    return fitted_table(
        {name: name for name in ("run", "ended", *_FIGURES, "verdict")},
        [_cells(run) for run in results],
        room=room,
        dropped=_DROPPED,
        folded={"run": _FOLDED, "verdict": _FOLDED},
        figures=_FIGURES,
    )


def _cells(run: RunResult) -> dict[str, str | Text]:
    """Return the cells of a run's row by heading."""
    verdict = run.verdict
    accuracies = {key: one for key, one in run.metrics.items() if "accuracy" in key.lower()}
    return {
        "run": run.name,
        "ended": plain(verdict.status.state, _STYLES[verdict.tone]),
        "steps": str(verdict.steps),
        "saved": "" if verdict.saved is None else str(verdict.saved),
        "loss": _first(run.losses),
        "accuracy": _first(accuracies),
        "verdict": _found(run),
    }


def print_result(run: RunResult, *, to: Console = console) -> None:
    """Print how one run ended, and its verdict."""
    verdict = run.verdict
    if tell(
        f"{run.name}: {verdict.headline}", _LEVELS.get(verdict.tone, "info"), to=to, **_fields(run)
    ):
        return
    # A training with more steps than it declared has no known total.
    of = f" of {verdict.total}" if verdict.total and verdict.steps <= verdict.total else ""
    loss = f"loss {_first(run.losses)}   " if run.losses else ""
    words = verdict.headline[0].lower() + verdict.headline[1:]
    line = plain(f"{run.name}   step {verdict.steps}{of}   {loss}")
    say(line.append_text(plain(words, _STYLES[verdict.tone])), to)
    if run.remedy is not None:
        say(f"  {retry_line(run.remedy)}", to)
    if run.restart is not None:
        say(f"  {run.restart.description}", to)
    if run.preflight is not None:
        say(f"  pre-flight: {run.preflight.summary}", to)
    _print_verdict(verdict, to)
    for note in run.notes:
        say(f"  {note}", to, style="red")
    where = [f"saved {verdict.saved} of {verdict.total} steps"] if verdict.saved else []
    if isinstance(run.directory, Path):
        where.append(f"report {relative(run.directory / REPORT)}")
    else:
        where.append(f"run {run.directory}")
    if run.mlflow_run:
        where.append(f"mlflow {run.mlflow_run[:6]}")
    say("  " + "   ".join(where), to, style="dim")


def _fields(run: RunResult) -> dict[str, object]:
    """Return what is known of the end of a run, as fields of a log line."""
    verdict, finding = run.verdict, run.verdict.finding
    found = (
        None
        if finding is None
        else {"seen": finding.seen, "cause": finding.cause, "remedy": finding.remedy}
    )
    return {
        "run": run.name,
        "rank": None if finding is None else finding.rank,
        "rule": None if finding is None else finding.rule,
        "step": None if finding is None else finding.step,
        "state": verdict.status.state,
        "reason": verdict.status.reason or None,
        "steps": verdict.steps,
        "location": str(run.directory),
        "mlflow_run": run.mlflow_run or None,
        "notes": [*map(visible, run.notes)] or None,
        **(found or {}),
    }


def _print_verdict(verdict: Verdict, to: Console) -> None:
    """Print what decides a verdict and what to do, then a line for each other finding."""
    state, finding = verdict.status.state, verdict.finding
    if finding is None or (state not in ("finished", "stopped", "running")):
        say(f"  {verdict.sentence if finding is None else verdict.status.reason}", to)
    if finding is not None:
        print_finding(finding, to=to)
    if verdict.proof:
        say(f"  tried          {verdict.proof}", to)
    for root in verdict.causes:
        shown = root.finding is finding
        if not shown:
            say(f"  {root.finding.severity}: {root.finding.rule}: {root.finding.seen}", to)
        symptoms = {one.rule: one for one in reversed(root.symptoms) if one is not finding}
        for symptom in list(symptoms.values())[::-1][:_MOST_SYMPTOMS]:
            say(f"  symptom: {symptom.rule}: {symptom.seen}", to)
        if (more := len(symptoms) - _MOST_SYMPTOMS) > 0:
            say(f"  symptoms: {more} more in the report", to)
    if verdict.is_idle and verdict.steps:
        say(f"  try            {verdict.advice}", to)


def print_finding(finding: Finding, *, to: Console = console) -> None:
    """Print what a rule found, its likely cause, and what to try."""
    say(f"  {finding.rule} since step {finding.since}: {finding.seen}", to)
    say(f"  likely cause   {finding.cause}", to)
    say(f"  try            {finding.remedy}", to)


def print_suspicions(storage: Storage, name: str) -> None:
    """Print what the checks before a run found suspicious, if it had any.

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
        run: name of the run, if there are several.
    """
    of = f"{run}: " if run else ""
    to.print(f"vinedresser: {of}{_NO_TRAINING}", soft_wrap=True)


def retry_line(remedy: RemedyRecord) -> str:
    """Return which stopped run a run retries, from where, and what is different."""
    tried = f"; tried {remedy.tried}" if remedy.tried else ""
    why = f"{remedy.finding['rule']}{tried}"
    return f"retries {remedy.stopped} {remedy.beginning}: {remedy.change} ({why})"


def _found(run: RunResult) -> str:
    """Return in a few words what was found in a run, and what data is lost or damaged."""
    verdict = run.verdict
    ended = verdict.status.state not in ("finished", "running")
    why = verdict.status.rule or (verdict.status.reason if ended else "")
    return "; ".join(filter(None, (why, verdict.brief, *run.notes[:_MOST_NOTES], _more(run.notes))))


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
