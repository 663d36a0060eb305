"""The Prefect tasks of the flows `monitor` and `explain`: each calls one function."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from vinedresser.infra.alert_events import emit_alert
from vinedresser.tasks.config.monitor_file import Monitor
from vinedresser.tasks.monitoring import arming, explaining
from vinedresser.tasks.monitoring.alert_actions import take_actions
from vinedresser.tasks.monitoring.arming import Life
from vinedresser.tasks.monitoring.explaining import Explanation, Subject
from vinedresser.tasks.monitoring.judging_windows import Judged
from vinedresser.tasks.monitoring.judging_windows import judge_windows as judge
from vinedresser.tasks.monitoring.telling import tell_windows

__all__ = ["act", "arm", "explain", "judge_windows", "tell"]


@task(name="arm", cache_policy=NO_CACHE)
def arm(monitor: Monitor, *, anew: bool) -> Life:
    """Begin a life of the monitor, unless one goes on; see `arming.arm`."""
    return arming.arm(monitor, anew=anew)


@task(name="judge windows", cache_policy=NO_CACHE)
def judge_windows(life: Life) -> Judged:
    """Judge all complete windows; see `judging_windows.judge_windows`."""
    return judge(life)


@task(name="tell", cache_policy=NO_CACHE)
def tell(life: Life) -> None:
    """Send MLflow what it does not know; see `telling.tell_windows`."""
    tell_windows(life)


@task(name="act", cache_policy=NO_CACHE)
def act(life: Life, subject: Subject, *, emits: bool) -> list[str]:
    """Ask for the inputs of an alert, take its actions, and emit its event.

    Args:
        life: the life of the monitor.
        subject: the alert's window.
        emits: whether an automation of Prefect's explains it.

    Returns:
        A sentence for each action that failed or was refused.
    """
    explaining.ask_for_inputs(life, subject)
    problems = take_actions(life, subject)
    if emits:
        emit_alert(life.monitor.name, life.monitor.state, subject.id, subject.text)
    return problems


@task(name="explain", cache_policy=NO_CACHE)
def explain(life: Life, subject: Subject) -> Explanation:
    """Explain a window; see `explaining.explain`."""
    return explaining.explain(life, subject)
