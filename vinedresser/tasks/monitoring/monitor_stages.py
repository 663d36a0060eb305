"""The Prefect tasks of the flows `monitor` and `explain`: each calls one function."""

from __future__ import annotations

from typing import NamedTuple

from prefect import task
from prefect.cache_policies import NO_CACHE

from vinedresser.infra.services.alert_events import emit_alert, emit_answer
from vinedresser.store.records import write_record
from vinedresser.tasks.config.monitor_file import Monitor
from vinedresser.tasks.monitoring import answering, arming, explaining
from vinedresser.tasks.monitoring.alert_actions import alert_finding, doubt_finding, take_actions
from vinedresser.tasks.monitoring.arming import Life
from vinedresser.tasks.monitoring.explaining import Explanation, Subject
from vinedresser.tasks.monitoring.judging_windows import Judged
from vinedresser.tasks.monitoring.judging_windows import judge_windows as judge
from vinedresser.tasks.monitoring.records import AnswerRecord
from vinedresser.tasks.monitoring.telling import tell_windows

__all__ = ["Answered", "act", "answer", "arm", "explain", "judge_windows", "tell"]


class Answered(NamedTuple):
    """What the monitor says.

    Attributes:
        record: the answer.
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
            problems = take_actions(life, doubt_finding(found))
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
    problems = take_actions(life, alert_finding(subject, life.monitor.alarm.budget))
    if emits:
        emit_alert(life.monitor.name, life.monitor.state, subject.id, subject.text)
    return problems


@task(name="explain", cache_policy=NO_CACHE)
def explain(life: Life, subject: Subject) -> Explanation:
    """Explain a window; see `explaining.explain`."""
    return explaining.explain(life, subject)
