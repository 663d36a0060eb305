"""Flow `retain`: remove the runs of a store that are not needed any more."""

from __future__ import annotations

from pathlib import Path

from prefect import State, flow
from prefect.states import Completed, Failed

from vinedresser.tasks.config.retention_file import load_retention
from vinedresser.tasks.reconcile.flow_record import flow_recorded
from vinedresser.tasks.retention_stage import retain as retain_task


@flow(name="retain", flow_run_name="retain {path.stem}")
def retain(path: Path) -> State[str]:
    """Remove what a retention file says, or list it.

    It leaves an artifact with the runs, and why others stay. Killed at any moment, it leaves no
    half of a run; the next run completes it.

    Returns:
        The final state, whose message is how much it was.

    Raises:
        ConfigError: the file is invalid.
        StillRunning: another process removes runs from the store.
        StoreError: the store refused.
    """
    checked = load_retention(path)
    with flow_recorded(checked.store):
        found, text = retain_task(checked, path.stem)
    if found.failed:
        return Failed(name="Not all removed", message=text)
    name = "Removed" if checked.delete else "Listed"
    return Completed(name=name, message=text, data=text)
