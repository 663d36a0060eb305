"""The Prefect tasks of the flows `monitor` and `explain`: each calls one function."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

from prefect import task
from prefect.cache_policies import NO_CACHE

from vinedresser.infra.services.alert_events import emit_alert, emit_answer
from vinedresser.rules.actions.base import ActionContext
from vinedresser.rules.actions.journal import Journal
from vinedresser.rules.actions.message import action_id, document
from vinedresser.rules.actions.plan import ActionPlan
from vinedresser.rules.actions.senders import senders
from vinedresser.rules.causes.root_cause import RootCause
from vinedresser.store.finding import Finding
from vinedresser.store.records import ActionRecord, RunRecord, write_record
from vinedresser.tasks.config.monitor_file import Monitor
from vinedresser.tasks.monitoring import answering, arming, explaining
from vinedresser.tasks.monitoring.arming import Life
from vinedresser.tasks.monitoring.explaining import Explanation, Subject
from vinedresser.tasks.monitoring.judging_windows import Judged
from vinedresser.tasks.monitoring.judging_windows import judge_windows as judge
from vinedresser.tasks.monitoring.records import AnswerRecord
from vinedresser.tasks.monitoring.telling import tell_windows

__all__ = ["Answered", "act", "answer", "arm", "explain", "judge_windows", "tell"]

_GROUP = "monitor"


class Answered(NamedTuple):
    """What the monitor says.

    Attributes:
        problems: a sentence for each action that failed or was refused.
    """

    record: AnswerRecord
    problems: list[str]


@task(name="arm", cache_policy=NO_CACHE)
def arm(monitor: Monitor, *, anew: bool) -> Life:
    """Begin a life of the monitor, unless one goes on; see `arming.arm`."""
    return arming.arm(monitor, anew=anew)


@task(name="judge windows", cache_policy=NO_CACHE)
def judge_windows(life: Life) -> Judged:
    """Judge all complete windows; see `judging_windows.judge_windows`."""
    return judge(life)


@task(name="answer", cache_policy=NO_CACHE)
def answer(life: Life, *, emits: bool) -> Answered:
    """Return the answer; if it is another one than before, emit its event and take its actions.

    Args:
        life: the life of the monitor.
        emits: whether automations of Prefect's may wait for its event.
    """
    before, found = answering.last_answer(life), answering.answer(life)
    problems: list[str] = []
    if before is None or before.answer != found.answer:
        if found.answer == "cannot tell":
            problems = _take_actions(life, _doubt_finding(found))
        if emits:
            emit_answer(life.monitor.name, life.monitor.state, found.to_json())
    # Last: what was not told is told by the next run.
    write_record(life.storage, found)
    return Answered(found, problems)


@task(name="tell", cache_policy=NO_CACHE)
def tell(life: Life, answer: AnswerRecord) -> None:
    """Send MLflow what it does not know; see `telling.tell_windows`."""
    tell_windows(life, answer)


@task(name="act", cache_policy=NO_CACHE)
def act(life: Life, subject: Subject, *, emits: bool) -> list[str]:
    """Ask for the inputs of an alert, take its actions, and emit its event.

    Args:
        subject: the alert's window.
        emits: whether an automation of Prefect's explains it.

    Returns:
        A sentence for each action that failed or was refused.
    """
    explaining.ask_for_inputs(life, subject)
    problems = _take_actions(life, _alert_finding(subject, life.monitor.alarm.budget))
    if emits:
        emit_alert(life.monitor.name, life.monitor.state, subject.id, subject.text)
    return problems


@task(name="explain", cache_policy=NO_CACHE)
def explain(life: Life, subject: Subject) -> Explanation:
    """Explain a window; see `explaining.explain`."""
    return explaining.explain(life, subject)


def _take_actions(life: Life, finding: Finding) -> list[str]:
    """Take the actions that follow a finding and have not been taken.

    Args:
        finding: see `_alert_finding` and `_doubt_finding`.

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
        cause = RootCause(finding, ())
        content = document(run, str(life.folder), cause, identity, template=plan.template)
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


def _alert_finding(alert: Subject, budget: float) -> Finding:
    """Return an alert as a finding: the windows are its steps.

    Args:
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


def _doubt_finding(answer: AnswerRecord) -> Finding:
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
