"""Flow `monitor`: judge the requests of a service that have arrived since the last time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prefect import flow

from vinedresser.errors import VinedresserError
from vinedresser.flows.explain import explain
from vinedresser.tasks.config.monitor_file import Monitor, load_monitor
from vinedresser.tasks.monitoring.explaining import alert_subject, is_explained
from vinedresser.tasks.monitoring.monitor_stages import act, arm, judge_windows, tell
from vinedresser.tasks.monitoring.records import WindowRecord, alerts_of
from vinedresser.tasks.process_lock import process_lock
from vinedresser.tasks.stores import ensure_store
from vinedresser.tasks.termination import ends_in_order

__all__ = ["Monitored", "monitor"]


@dataclass(frozen=True)
class Monitored:
    """What a run of the flow found.

    Attributes:
        folder: folder of the life of the monitor.
        windows: the windows that it judged.
        alert: id of the alert of this life; "" for none.
        text: what has drifted; "" for nothing.
        problems: sentences about what failed beside it.
    """

    folder: Path
    windows: list[WindowRecord]
    alert: str
    text: str
    problems: list[str]


@flow(name="monitor", flow_run_name="monitor {path.stem}")
def monitor(path: Path, rearm: bool = False, emits: bool = False) -> Monitored:
    """Judge the windows of requests that are complete and have not been judged.

    On an alarm it asks the service for the inputs of the window, takes the actions of the file, and
    has the alert explained.

    Args:
        path: the monitor file.
        rearm: begin another life, with a new baseline and a new budget of false alarms.
        emits: emit a Prefect event, on which an automation runs the flow `explain`, instead of
            running it now.

    Raises:
        ConfigError: the file is invalid, or differs from the monitor in its folder.
        DriftError: the baseline cannot be used, or the alert not be explained.
        StillRunning: another process runs this monitor.
        StoreError: the store of the requests refused; nothing was judged.
        TrackingError: MLflow's database or server refused; the next run sends what is missing.
    """
    checked = load_monitor(path)
    return ends_in_order(lambda: _monitor(checked, rearm, emits), checked.state)


def _monitor(checked: Monitor, rearm: bool, emits: bool) -> Monitored:
    ensure_store(checked.state)
    with process_lock(checked.state / "lock", "monitor"):
        life = arm(checked, anew=rearm)
        judged = judge_windows(life)
        problems = [*judged.problems]
        alerts = alerts_of(life.storage)
        for alert in alerts:
            # Also one whose flow was killed, and one whose event was lost.
            if not is_explained(life, alert.id):
                subject = alert_subject(life, alert.id)
                problems += act(life, subject, emits=emits)
        tell(life)
    if not emits and checked.model.build is not None:
        for alert in alerts:
            problems += _explained(checked.path, alert.id)
    last = alerts[-1] if alerts else None
    return Monitored(
        life.folder,
        judged.windows,
        last.id if last is not None else "",
        last.text if last is not None else "",
        problems,
    )


def _explained(path: Path, alert: str) -> list[str]:
    """Explain an alert; return why that failed, which is no failure of the monitor."""
    state = explain(path=path, alert=alert, return_state=True)
    result = state.result(raise_on_failure=False)
    if isinstance(result, VinedresserError):
        return [str(result)]
    if isinstance(result, BaseException):
        raise result
    return []
