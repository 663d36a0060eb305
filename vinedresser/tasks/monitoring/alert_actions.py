"""The actions that follow an alert or a doubt: notify, email, command."""

from __future__ import annotations

import threading
import time
from typing import Any

from vinedresser.rules.actions.base import ActionContext
from vinedresser.rules.actions.journal import Journal
from vinedresser.rules.actions.message import action_id, document
from vinedresser.rules.actions.plan import ActionPlan
from vinedresser.rules.actions.senders import senders
from vinedresser.rules.causes.root_cause import RootCause
from vinedresser.store.finding import Finding
from vinedresser.store.records import ActionRecord, RunRecord
from vinedresser.tasks.monitoring.arming import Life
from vinedresser.tasks.monitoring.explaining import Subject
from vinedresser.tasks.monitoring.records import AnswerRecord

__all__ = ["alert_finding", "doubt_finding", "take_actions"]

_GROUP = "monitor"


def take_actions(life: Life, finding: Finding) -> list[str]:
    """Take the actions that follow a finding and have not been taken.

    Args:
        finding: see `alert_finding` and `doubt_finding`.

    Returns:
        A sentence for each action that failed or was refused.

    Raises:
        CorruptData: the journal of the actions cannot be read.
        StoreError: the folder cannot be written.
    """
    plan = ActionPlan.from_tables(life.monitor.actions, {})
    journal = Journal(life.storage, _GROUP)
    run = RunRecord(
        id=life.record.id, name=life.record.shown, created=life.record.created, parameters={}
    )
    actions = senders(plan.settings)
    problems = []
    for name in plan.of(finding):
        identity = action_id(life.record.id, finding, name)
        if journal.has(identity):
            continue
        action = actions[name]
        content = document(run, str(life.folder), RootCause(finding, ()), identity)
        context = ActionContext(identity, finding, life.storage, content, threading.Event())
        result = action.take(context)
        journal.add(
            ActionRecord(
                id=identity,
                action=name,
                rule=finding.rule,
                step=finding.step,
                time=time.time(),
                outcome=result.word,
                detail=result.detail,
            )
        )
        if result.word != "done":
            problems.append(f"action {name} {result.word}: {result.detail}")
    return problems


def alert_finding(alert: Subject, budget: float) -> Finding:
    """Return an alert as a finding: the windows are its steps.

    Args:
        alert: the alert's window.
        budget: probability of a false alarm in the life of the monitor.
    """
    verdict = alert.window.verdict
    drifted = verdict["features"]
    # A request without the baseline's form has no evidence, but certainty.
    certain: dict[str, Any] = {"name": "", "evidence": 0.0, "needed": 0.0}
    first = drifted[0] if verdict["alarm"] else certain
    return Finding(
        rule="drift",
        severity="warning",
        step=alert.window.number,
        since=alert.window.number if verdict["since"] is None else verdict["since"],
        mode="predict",
        rank=0,
        tensor=first["name"],
        statistic="log10 evidence",
        value=float(first["evidence"]),
        threshold=float(first["needed"]),
        confidence=1.0 - budget,
        seen=alert.text,
        cause="the requests are not like the baseline",
        remedy="look at the explanation; if the change is to stay, train with such data and rearm",
        evidence={"alert": alert.id, "answer": verdict["answer"], "features": drifted},
        fault="drift",
    )


def doubt_finding(answer: AnswerRecord) -> Finding:
    """Return an answer that nothing can be told as a finding; its step is the next window."""
    return Finding(
        rule="drift",
        severity="info",
        step=answer.windows,
        since=answer.windows,
        mode="predict",
        rank=0,
        tensor="",
        statistic="requests that count",
        value=float(answer.counted),
        threshold=0.0,
        confidence=1.0,
        seen=answer.text,
        cause="nothing could be judged",
        remedy="; ".join(answer.reasons),
        evidence={"answer": answer.answer, "reasons": answer.reasons},
        fault="drift",
    )
