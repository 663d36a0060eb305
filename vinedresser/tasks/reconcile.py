"""Put right what a crash left behind, from what is on disk; every flow begins with it.

Any process may have been killed at any moment. What is still owned by a living process is left
alone; everything else is brought to its end: leftover processes are killed, the exit record is
written, MLflow's run gets its metrics, its report and its final status, and Prefect's flow runs
that nobody runs any more become Crashed. Doing it twice changes nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from vinedresser.errors import StillRunning, VinedresserError
from vinedresser.infra.launcher import settle
from vinedresser.infra.processes import kill_marked
from vinedresser.infra.run_directory import (
    FLOW_VARIABLE,
    ExitRecord,
    TrackingRecord,
    read_record,
)
from vinedresser.infra.storage import LocalStorage
from vinedresser.infra.storage.relaying import recover_spools
from vinedresser.tasks.flow_record import dead_flows, forget_flow, mark_crashed
from vinedresser.tasks.recording import send_metrics
from vinedresser.tasks.settle import settle_run
from vinedresser.tasks.store import is_owned, run_directories

__all__ = ["Reconciled", "reconcile", "reconcile_spools"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reconciled:
    """What `reconcile` put right.

    Attributes:
        what: the name of a run, or of a flow run.
        done: what was done, or why it could not be.
        failed: it could not be done now, and is to be tried again.
    """

    what: str
    done: str
    failed: bool = False


def reconcile(store: Path) -> list[Reconciled]:
    """Bring every abandoned run and flow run of a store to its end.

    Args:
        store: the directory that holds the run directories, or one run directory.

    Returns:
        What was put right; empty when there was nothing to do. A run that cannot be settled now,
        because MLflow is away, is in the list as failed and does not keep the others from it.
    """
    results = [*_reconcile_flows(store)]
    for directory in run_directories(store):
        try:
            done = _reconcile_run(directory)
        except VinedresserError as error:
            _log.warning("%s: not reconciled: %s", directory.name, error)
            results.append(Reconciled(directory.name, str(error), failed=True))
        else:
            if done:
                results.append(Reconciled(directory.name, done))
    return results


def reconcile_spools(patience: float = 300.0) -> list[Reconciled]:
    """Upload what crashes left on this machine of runs that belong on an object store.

    Args:
        patience: seconds to wait for it; what is not uploaded by then is being uploaded on.
    """
    results = []
    for url, done in recover_spools(_log.warning, timeout=patience):
        said = "uploaded to its end" if done else "not all of it is uploaded yet"
        results.append(Reconciled(url, said, failed=not done))
    return results


def _reconcile_run(directory: Path) -> str:
    """Bring one run to its end if nobody else will; return what was done, "" for nothing."""
    if is_owned(directory):
        return ""
    storage = LocalStorage(directory)
    was_over = storage.exists(ExitRecord.KEY)
    try:
        end = settle(directory)
    except StillRunning:
        return ""
    tracking = read_record(storage, TrackingRecord)
    if was_over and (tracking is None or tracking.settled):
        return ""
    send_metrics(directory)
    settle_run(directory)
    if was_over:
        return f"{end.cause}; MLflow brought up to date"
    return f"{end.cause}: {end.reason}"


def _reconcile_flows(store: Path) -> list[Reconciled]:
    """End what dead flows left running, and mark their Prefect runs as crashed."""
    results = []
    for flow in dead_flows(store):
        kill_marked(f"{FLOW_VARIABLE}={flow.marker}")
        if mark_crashed(flow):
            results.append(Reconciled(f"flow run {flow.name}", "crashed: its process is gone"))
        forget_flow(store, flow)
    return results
