"""Flow `explain`: what the model sees in the requests of an alert, beside the baseline."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from vinedresser.errors import ConfigError
from vinedresser.tasks.config.monitor_file import Monitor, load_monitor
from vinedresser.tasks.monitoring.arming import current_life
from vinedresser.tasks.monitoring.explaining import (
    Explanation,
    alert_subject,
    is_cooling,
    skip,
    window_subject,
)
from vinedresser.tasks.monitoring.monitor_stages import explain as explain_task
from vinedresser.tasks.process_lock import process_lock
from vinedresser.tasks.reconcile.flow_record import flow_recorded
from vinedresser.tasks.termination import ends_in_order

__all__ = ["explain", "explain_alert"]


@flow(name="explain", flow_run_name="explain {path.stem}")
def explain(path: Path, alert: str | None = None, window: int | None = None) -> Explanation | None:
    """Compute the saliency of the requests of an alert, and show it in MLflow.

    An alert is explained once, however often the flow runs, and not soon after another one.

    Args:
        alert: id of the alert; None: the last one.
        window: number of a window to explain instead.

    Returns:
        The explanation; None if another alert was explained a short time ago.

    Raises:
        ConfigError: the file is invalid, or there is no such alert or window.
        DriftError: the model could not be loaded, or failed.
        StillRunning: another process explains alerts of this monitor.
        StoreError: the store of the requests refused.
        TrackingError: MLflow's database or server refused; the next run sends what is missing.
    """
    return explain_alert(load_monitor(path), alert, window)


def explain_alert(
    checked: Monitor, alert: str | None = None, window: int | None = None
) -> Explanation | None:
    """Explain an alert of a monitor whose file has been read; see `explain`."""
    return ends_in_order(lambda: _explain(checked, alert, window), checked.state)


def _explain(checked: Monitor, alert: str | None, window: int | None) -> Explanation | None:
    life = current_life(checked)
    if life is None:
        raise ConfigError(f"{checked.path}: has not run yet; run `vinedresser monitor` first")
    subject = alert_subject(life, alert) if window is None else window_subject(life, window)
    with (
        # The monitor has the record of its own flow run for its folder.
        flow_recorded(life.folder),
        process_lock(life.folder / "explain.lock", "explanation"),
    ):
        # By hand, without an alert's id, it is explained at any time.
        if alert is not None and is_cooling(life, subject):
            skip(life, subject)
            return None
        return explain_task(life, subject)
