"""Flow `monitor`: judge the requests of a service that have arrived since the last time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from httpx import HTTPError
from prefect import State, flow
from prefect.states import Completed

from vinedresser.errors import VinedresserError
from vinedresser.flows.explain import explain, explain_alert
from vinedresser.flows.handover import with_settings
from vinedresser.infra.catalog.stores import ensure_store
from vinedresser.tasks.config.actions_table import refuse_missing_block
from vinedresser.tasks.config.monitor_file import Monitor, load_monitor
from vinedresser.tasks.monitoring.explaining import alert_subject, is_explained
from vinedresser.tasks.monitoring.monitor_stages import (
    act,
    answer,
    arm,
    judge_windows,
    tell,
)
from vinedresser.tasks.monitoring.records import AnswerRecord, WindowRecord, alerts_of
from vinedresser.tasks.process_lock import process_lock
from vinedresser.tasks.reconcile.flow_record import flow_recorded
from vinedresser.tasks.termination import ends_in_order

__all__ = ["Monitored", "judge_requests", "monitor"]


@dataclass(frozen=True)
class Monitored:
    """What a run of the flow found.

    Attributes:
        folder: folder of the life of the monitor.
        windows: the windows that it judged.
        answer: what the monitor says of all requests so far.
        problems: sentences about what failed beside it.
    """

    folder: Path
    windows: list[WindowRecord]
    answer: AnswerRecord
    problems: list[str]


@flow(name="monitor", flow_run_name="monitor {path.stem}")
def monitor(path: Path, rearm: bool = False, emits: bool = False) -> State[Monitored]:
    """Judge the windows of requests that are complete and have not been judged.

    On an alarm it asks the service for the inputs of the window, takes the actions of the file, and
    has the alert explained.

    Args:
        path: the monitor file.
        rearm: begin another life, with a new baseline and a new budget of false alarms.
        emits: emit a Prefect event, on which an automation runs the flow `explain`, instead of
            running it now.

    Returns:
        The final state of the flow run: its name is the answer, its result the `Monitored`.

    Raises:
        ConfigError: the file is invalid, or differs from the monitor in its folder.
        DriftError: the baseline cannot be used, or the alert not be explained.
        StillRunning: another process runs this monitor.
        StoreError: the store of the requests refused; nothing was judged.
        TrackingError: MLflow's database or server refused; the next run sends what is missing.
    """
    return judge_requests(load_monitor(path), rearm=rearm, emits=emits)


def judge_requests(checked: Monitor, *, rearm: bool, emits: bool = False) -> State[Monitored]:
    """Judge the requests of a monitor whose file has been read; see `monitor`."""
    refuse_missing_block(checked.actions, checked.path)
    found = ends_in_order(lambda: _monitor(checked, rearm, emits), checked.state)
    # Without this, Prefect would show "Completed" over a drift.
    name, text = found.answer.answer.capitalize(), found.answer.text
    return Completed(name=name, message=text, data=found)


def _monitor(checked: Monitor, rearm: bool, emits: bool) -> Monitored:
    ensure_store(checked.state)
    with flow_recorded(checked.state):
        with process_lock(checked.state / "lock", "monitor"):
            life = arm(checked, anew=rearm)
            judged = judge_windows(life)
            problems = [*judged.problems]
            answered = answer(life, emits=emits)
            problems += answered.problems
            alerts = alerts_of(life.storage)
            for alert in alerts:
                # Also one whose flow was killed, and one whose event was lost.
                if not is_explained(life, alert.id):
                    subject = alert_subject(life, alert.id)
                    problems += act(life, subject, emits=emits)
            tell(life, answered.record)
        if not emits and checked.model.build is not None:
            for alert in alerts:
                problems += _explained(checked, alert.id)
    return Monitored(life.folder, judged.windows, answered.record, problems)


def _explained(checked: Monitor, alert: str) -> list[str]:
    """Explain an alert; return why that failed, which is no failure of the monitor."""
    flow = with_settings(explain, partial(explain_alert, checked, alert))
    try:
        state = flow(path=checked.path, alert=alert, return_state=True)
    except (HTTPError, RuntimeError) as error:
        return [f"Prefect's server did not take the explanation of alert {alert}: {error}"]
    result = state.result(raise_on_failure=False)
    if isinstance(result, VinedresserError):
        return [str(result)]
    if isinstance(result, BaseException):
        raise result
    return []
