"""Repair what a crash left behind, from the files on disk; every flow begins with it.

Any process may be killed at any moment. A run that a living process owns is left alone; every other
is brought to its end: leftover processes are killed, the exit record is written, MLflow's run gets
its metrics, its report and its final status, and Prefect's flow runs that no process runs become
Crashed. Repeating it changes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vinedresser.capture.run.claims import additional_location
from vinedresser.errors import CorruptData, StillRunning, UntrustedTracking, VinedresserError
from vinedresser.infra.catalog.flow_records import FlowRecord, dead_flows, forget_flow
from vinedresser.infra.catalog.run_notes import RunNote, removed_runs
from vinedresser.infra.catalog.stores import living_owner, owner_is_gone
from vinedresser.infra.supervise.launcher import end_processes
from vinedresser.objects import Location, StoreUrl, open_storage
from vinedresser.plain_logs import plain_logger
from vinedresser.processes import kill_marked
from vinedresser.store.json_values import DAMAGE, parse_json
from vinedresser.store.reading.store_runs import remote_runs, run_directories
from vinedresser.store.records import FLOW_VARIABLE, TrackingRecord
from vinedresser.store.relay_process import recover_spools
from vinedresser.store.spool import adopt_spool, read_target, spools
from vinedresser.tasks.lifecycle.additional_runs import equip_additional
from vinedresser.tasks.lifecycle.earlier_runs import settle_left
from vinedresser.tasks.lifecycle.mlflow_run import end_removed
from vinedresser.tasks.parents.ending import settle_parent
from vinedresser.tasks.parents.kinds import KINDS
from vinedresser.tasks.parents.parent_notes import settle_removed_parent
from vinedresser.tasks.places.shipment import settle_staged
from vinedresser.tasks.reconcile.flow_record import is_within_reach, mark_crashed

__all__ = ["Reconciled", "reconcile", "reconcile_spools"]

_log = plain_logger(__name__)

# Seconds to wait for uploads before the runs are inspected, and between two looks.
_UPLOADS, _LOOK = 60.0, 0.2


@dataclass(frozen=True)
class Reconciled:
    """One repair.

    Attributes:
        what: name of the run or flow run.
        done: what was done, or why it failed or was left alone.
        failed: whether it failed and is to be tried again.
    """

    what: str
    done: str
    failed: bool = False


def reconcile(store: Location, *, prefect: bool = True) -> list[Reconciled]:
    """Bring every abandoned run, sweep, pruning and flow run of a store to its end.

    Args:
        store: a store or a single run. The runs of a sweep or pruning are a separate store.
        prefect: whether flow runs of processes that are gone become Crashed in Prefect.

    Returns:
        The repairs; empty if nothing was to be done. A failed one, such as without MLflow, does not
        prevent the others.
    """
    results = [*_reconcile_flows(store, prefect=prefect)]
    if not isinstance(store, Path):
        settle_staged(store)
        results += reconcile_spools(_UPLOADS, store=store)
        _await_relays(store)
    for location in _unsettled(store):
        results += _attempt(location.name, partial(_reconcile_run, location))
    if isinstance(store, Path):
        results += _reconcile_removed(store)
    for kind in KINDS:
        what = f"{kind.WORD} {store.name}"
        if isinstance(store, Path):
            results += _attempt(what, partial(settle_removed_parent, store, kind))
        results += _attempt(what, partial(settle_parent, store, kind))
    return results


def _attempt(what: str, action: Callable[[], str]) -> list[Reconciled]:
    """Try a repair, and return what it did, if anything."""
    try:
        done = action()
    except UntrustedTracking as error:
        _log.warning("%s: left alone: %s", what, error)
        return [Reconciled(what, f"left alone: {error}")]
    except VinedresserError as error:
        _log.warning("%s: not reconciled: %s", what, error)
        return [Reconciled(what, str(error), failed=True)]
    return [Reconciled(what, done)] if done else []


def reconcile_spools(patience: float = 300.0, *, store: str = "") -> list[Reconciled]:
    """Upload the spools that crashes left on this machine.

    Args:
        patience: seconds to wait; slower uploads continue by themselves.
        store: only runs in this store; "" for all.
    """
    for folder in spools(store):
        if owner_is_gone(folder):
            _adopt_additional(folder)
    results = []
    for url, done in recover_spools(_log.warning, timeout=patience, store=store):
        said = "upload completed" if done else "upload not yet complete"
        results.append(Reconciled(url, said, failed=not done))
    return results


def _unsettled(store: Location) -> Sequence[Location]:
    """Return the runs that may need settling; on an object store those whose MLflow run does."""
    if isinstance(store, Path):
        return run_directories(store)
    storage = open_storage(store)
    runs = remote_runs(store)
    folders = [run.removeprefix(storage.location).lstrip("/") for run in runs]
    keys = ["/".join(filter(None, (folder, TrackingRecord.KEY))) for folder in folders]
    found = zip(runs, storage.get_many(keys), strict=True)
    return [run for run, record in found if record and not _is_settled(record)]


def _is_settled(record: bytes) -> bool:
    """Return whether a tracking record says so; a damaged one says nothing."""
    try:
        return TrackingRecord.from_json(parse_json(record)).settled
    except DAMAGE:
        return False


def _adopt_additional(folder: Path) -> None:
    """Turn what additional runs left beside the spool of a killed script into spools."""
    target = read_target(folder)
    for further in equip_additional(folder):
        if target is not None and read_target(further) is None:
            url = additional_location(target.url, int(further.name.rpartition(".")[2]))
            os.close(adopt_spool(further, url))


def _await_relays(store: StoreUrl) -> None:
    """Wait for uploads that have outlived their flow."""
    deadline = time.monotonic() + _UPLOADS
    while time.monotonic() < deadline and any(map(owner_is_gone, spools(store))):
        time.sleep(_LOOK)


def _reconcile_run(location: Location) -> str:
    """Bring a run without an owner to its end; return what was done, "" for nothing."""
    # A damaged launch record does not say; supervised runs continue all the same.
    with suppress(CorruptData):
        if living_owner(location) is not None:
            return ""
    try:
        return settle_left(location)
    except StillRunning:
        return ""


def _reconcile_removed(store: Path) -> list[Reconciled]:
    """End the runs whose directory was removed under a flow that is gone, too."""
    results = []
    faults: list[str] = []

    def end(note: RunNote) -> str:
        directory = Path(note.directory)
        end_processes(directory, note.id)
        end_removed(directory, TrackingRecord.from_json(note.tracking))
        return "killed: its run directory was removed"

    for note in [*removed_runs(store, faults, RunNote)]:
        results += _attempt(Path(note.directory).name, partial(end, note))
    return [*results, *(Reconciled("note on a run", fault, failed=True) for fault in faults)]


def _end_flow(store: Location, flow: FlowRecord) -> str:
    """Mark a dead flow run as crashed; return what was done, "" for nothing."""
    crashed = mark_crashed(flow)
    # Only now: its server has answered.
    forget_flow(store, flow)
    return "crashed: its process is gone" if crashed else ""


def _reconcile_flows(store: Location, *, prefect: bool) -> list[Reconciled]:
    """End the processes of dead flows, and mark their Prefect runs as crashed.

    The record of a flow run on a server that this process does not use is kept for one that does.
    """
    results = []
    faults: list[str] = []
    for flow in dead_flows(store, faults):
        if flow.marker:
            kill_marked(f"{FLOW_VARIABLE}={flow.marker}")
        if not flow.server:
            forget_flow(store, flow)
        elif prefect and is_within_reach(flow):
            results += _attempt(f"flow run {flow.name}", partial(_end_flow, store, flow))
    return [*results, *(Reconciled("record of a flow run", fault, failed=True) for fault in faults)]
