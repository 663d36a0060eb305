"""The message about a sweep that is over, instead of one about each of its trials."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import asdict
from typing import Any

from vinedresser.errors import VinedresserError
from vinedresser.explain.reports.sweep import Cause, causes
from vinedresser.objects import LocalStorage
from vinedresser.rules.actions.action_queue import ActionQueue, await_queues
from vinedresser.rules.actions.base import Action, ActionContext, ActionResult
from vinedresser.rules.actions.journal import Journal
from vinedresser.rules.actions.message import message_id
from vinedresser.rules.actions.senders import senders
from vinedresser.store.finding import Finding
from vinedresser.store.json_values import strict_json
from vinedresser.store.records import ActionRecord, read_record
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.sweeps.trial import Trial
from vinedresser.tasks.config.sweep_file import Sweep
from vinedresser.tasks.parents.kinds import is_removed
from vinedresser.tasks.sweeping.sweep_result import SweepResult

_GROUP = "sweep"


def send_digest(sweep: Sweep, swept: SweepResult) -> list[str]:
    """Send the digest of a sweep by each action that sends messages, within a bounded time.

    One that an earlier process sent is not repeated. A sweep that was interrupted, and waits to be
    resumed, sends none.

    Returns:
        A sentence for each action that failed or was refused.
    """
    plan = sweep.experiment.action_plan
    if not plan.messages or swept.interrupted or is_removed(sweep.state, SweepRecord):
        return []
    try:
        return _send(sweep, swept, plan.messages, senders(plan.settings))
    except VinedresserError as error:
        return [f"the digest of the sweep was not sent: {error}"]


def _send(
    sweep: Sweep, swept: SweepResult, names: list[str], actions: dict[str, Action]
) -> list[str]:
    storage = LocalStorage(sweep.state)
    journal = Journal(storage, _GROUP)
    record = read_record(storage, SweepRecord)
    identity = record.id if record is not None else sweep.name
    giving_up = threading.Event()
    problems: list[str] = []

    def over(action: Action, context: ActionContext, result: ActionResult) -> None:
        if result.word != "done":
            problems.append(f"action {action.name} {result.word}: {result.detail}")
        step, rule = context.finding.step, context.finding.rule
        journal.add(
            ActionRecord(
                *(context.id, action.name, rule, step, time.time(), result.word, result.detail)
            )
        )

    queue = ActionQueue("digest", over)
    ends = sorted(swept.ends.items())
    for name in names:
        digest = message_id(identity, name, swept.verdict, swept.over, ends)
        if not journal.has(digest):
            content = _document(sweep, swept, digest)
            finding = _as_finding(swept)
            queue.put(actions[name], ActionContext(digest, finding, storage, content, giving_up))
    queue.end()
    if not await_queues([queue], giving_up):
        problems.append("the digest of the sweep was given up: its receiver does not answer")
    return problems


def _document(sweep: Sweep, swept: SweepResult, identity: str) -> dict[str, Any]:
    """Return the content of the digest, as standard JSON; see `message.document`."""
    found = causes(swept.trials, sweep.space, swept.best)
    document = {
        "id": identity,
        "time": time.time(),
        "kind": "digest",
        "text": f"{swept.name}: {swept.verdict}",
        "facts": _facts(swept, sweep.settings, found),
        "sweep": {
            "name": swept.name,
            "location": str(swept.store),
            "over": swept.over,
            "problem": swept.problem,
            "trials": dict(swept.ends),
            "best": [_described(trial, sweep) for trial in swept.best],
            "causes": [
                {
                    "fault": cause.fault,
                    "rules": [*cause.rules],
                    "trials": [trial.name for trial in cause.trials],
                    "where": cause.where,
                    "example": {"name": cause.example.name, **asdict(cause.example.ending)},
                    "remedy": cause.remedy,
                }
                for cause in found
            ],
        },
    }
    return {key: strict_json(value) for key, value in document.items()}


def _described(trial: Trial, sweep: Sweep) -> dict[str, Any]:
    values = zip(sweep.settings.goals, trial.result, strict=True)
    return {
        "name": trial.name,
        "values": {goal.metric: value for goal, value in values},
        "parameters": sweep.space.decoded(trial.parameters),
    }


def _facts(swept: SweepResult, settings: SweepTable, found: list[Cause]) -> dict[str, str]:
    """Return what a person wants to know, by headings."""
    best = []
    for trial in swept.best:
        values = zip(settings.goals, trial.result, strict=True)
        said = ", ".join(f"{goal.metric} {value:.4g}" for goal, value in values)
        best.append(f"{trial.name}: {said} with {trial.configuration}")
    none = "no trial has finished" + (" within the constraints" if settings.constraints else "")
    failed = Counter(
        trial.ending.reason for trial in swept.trials if trial.ending.state == "failed"
    )
    return {
        "Sweep": f"{swept.name} ({swept.store})",
        "Best": "\n".join(best) or none,
        "Broken": "\n".join(map(_sentence, found)),
        "Failed": "\n".join(f"{count}: {reason}" for reason, count in failed.most_common(3)),
        "Ended": swept.over,
    }


def _sentence(cause: Cause) -> str:
    where = f" ({cause.where})" if cause.where else ""
    example = f"{cause.example.name}: {cause.example.ending.reason}"
    remedy = f"; try {cause.remedy}" if cause.remedy else ""
    if len(cause.trials) == 1:
        return f"{cause.fault}: {example}{remedy}"
    return f"{cause.fault}: {len(cause.trials)} trials{where}, such as {example}{remedy}"


def _as_finding(swept: SweepResult) -> Finding:
    """Return the sweep as the finding that an action is taken for."""
    return Finding(
        rule="sweep",
        severity="info",
        step=sum(swept.ends.values()),
        since=0,
        mode="eval",
        rank=0,
        tensor="",
        statistic="trials",
        value=float(len(swept.trials)),
        threshold=0.0,
        confidence=1.0,
        seen=swept.verdict,
        cause="",
        remedy="",
    )
