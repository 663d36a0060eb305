"""Checks of a store: whether it can be written to, and what a crash has left in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

from vinedresser.errors import ConfigError, CorruptData, MissingDependency, NotARun, StoreError
from vinedresser.infra.catalog.flow_records import dead_flows
from vinedresser.infra.catalog.left_stores import left_stores
from vinedresser.infra.catalog.run_notes import RunNote, removed_runs
from vinedresser.infra.catalog.stores import living_owner, owner_is_gone
from vinedresser.objects import Location, open_storage
from vinedresser.objects.base import TEMPORARY
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.store_runs import runs_in
from vinedresser.store.records import LaunchRecord, RunRecord
from vinedresser.store.spool import lock_spool, spools
from vinedresser.store.status import run_status
from vinedresser.tasks.health.check import Check, unless_it_fails
from vinedresser.tasks.health.machine import space_check, write_check
from vinedresser.tasks.parents.kinds import KINDS, kind_of, parent_state, parents_in
from vinedresser.tasks.transfer import ARRIVING

__all__ = ["left_checks", "store_checks"]

_AREA = "store"
# Names in a sentence.
_MOST = 3


def store_checks(store: Location) -> Iterator[Check]:
    """Yield the checks of a store.

    Args:
        store: an existing one; on an object store, an object is written and deleted again.
    """
    if isinstance(store, Path):
        yield from unless_it_fails(_AREA, str(store), partial(_folder, store))
    else:
        written = _bucket(store)
        yield written
        if written.state != "ok":
            return
    yield from unless_it_fails(_AREA, "runs", partial(_runs, store))


def left_checks() -> Iterator[Check]:
    """Yield what crashes have left on this machine, in whichever store of this user."""
    faults: list[str] = []
    for store in left_stores(faults):
        seen = f"a crash has left runs or flow runs in {store}"
        yield Check(_AREA, "crashes", "warning", seen, f"vinedresser reconcile {store}")
    for fault in faults:
        yield Check(_AREA, "notes on runs", "warning", fault, "delete it")
    waiting = [folder for folder in spools() if _is_abandoned(folder)]
    if waiting:
        seen = f"of {_names(folder.name for folder in waiting)}: nothing uploads them"
        yield Check(_AREA, "uploads", "warning", seen, "vinedresser reconcile")
    if not faults and not waiting:
        yield Check(_AREA, "uploads", "ok", "none is left behind")


def _folder(store: Path) -> Iterator[Check]:
    yield write_check("folder", store, _AREA)
    yield space_check("space", store, _AREA)
    mode = store.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        seen = f"{store}: every user of this machine may change it"
        yield Check(_AREA, "folder", "warning", seen, f"chmod o-w {store}")


def _bucket(store: Location) -> Check:
    """Return whether objects can be written and deleted where a store is."""
    storage = open_storage(store)
    key = f"doctor-{uuid4().hex}"
    try:
        storage.put(key, [b""])
        storage.delete(key)
    except (ConfigError, MissingDependency, StoreError) as error:
        return Check(_AREA, str(store), "problem", str(error), "see docs/s3.md")
    return Check(_AREA, str(store), "ok", "objects can be written and deleted")


def _runs(store: Location) -> Iterator[Check]:
    """Yield what is wrong with the runs of a store, its sweeps and its prunings."""
    parents = parents_in(store)
    stores = [store, *parents]
    runs = [run for place in stores for run in runs_in(place)]
    found = [*_unfinished(runs), *_damaged(runs)]
    dead = [parent.name for parent in parents if _is_dead(parent)]
    if dead:
        found.append(_left(store, "sweeps and prunings", f"{_names(dead)} ended without a word"))
    faults: list[str] = []
    flows = [flow.name for place in stores for flow in dead_flows(place, faults)]
    if flows:
        found.append(_left(store, "flow runs", f"{_names(flows)}: their process is gone"))
    for place in stores:
        if isinstance(place, Path):
            removed = [Path(note.directory).name for note in removed_runs(place, faults, RunNote)]
            if removed:
                seen = f"{_names(removed)}: removed while MLflow shows them as running"
                found.append(_left(store, "runs", seen))
            found += _strays(place)
    found += [Check(_AREA, "notes on runs", "warning", fault, "delete it") for fault in faults]
    yield from found
    if not found:
        seen = f"{len(runs):,} runs, {len(parents):,} sweeps and prunings; none is left without end"
        yield Check(_AREA, "runs", "ok", seen)


def _unfinished(runs: Sequence[Location]) -> Iterator[Check]:
    """Yield the runs that nothing runs and nothing has ended, and those without their flow."""
    dead, alone, elsewhere = [], [], []
    for run in runs:
        try:
            state = run_status(open_storage(run)).state
            owner = living_owner(run) if state == "dead" else None
        except (CorruptData, NotARun):
            # `_damaged` names it.
            continue
        if owner is not None and owner.sign is not None:
            elsewhere.append(f"{run.name}: {owner.said}")
        elif state == "dead":
            dead.append(run)
        elif state == "running" and owner_is_gone(run):
            alone.append(run)
    if dead:
        seen = f"{_names(run.name for run in dead)}: no process runs them, and no end is recorded"
        yield _left(dead[0].parent, "runs", seen)
    if elsewhere:
        more = f" (and {len(elsewhere) - 1} more such runs)" if len(elsewhere) > 1 else ""
        remedy = "vinedresser reconcile on that machine, or here once it counts as gone"
        yield Check(_AREA, "runs", "warning", f"{elsewhere[0]}{more}", remedy)
    if alone:
        seen = f"{_names(run.name for run in alone)}: still training, and their flow is gone"
        remedy = "they stop by themselves; --resume of their sweep or job adopts them"
        yield Check(_AREA, "runs", "warning", seen, remedy)


def _damaged(runs: Sequence[Location]) -> Iterator[Check]:
    """Yield the damaged records of runs."""
    for run in runs:
        storage = open_storage(run)
        problems: list[str] = []
        read_record_or_none(storage, RunRecord, RunRecord.KEY, problems)
        with suppress(CorruptData, NotARun):
            problems += run_status(storage).problems
        for problem in problems:
            remedy = "vinedresser reconcile settles the run without it"
            if "a newer version of vinedresser" in problem:
                remedy = "pip install --upgrade vinedresser"
            yield Check(_AREA, "records", "warning", problem, remedy)


def _strays(store: Path) -> Iterator[Check]:
    """Yield what looks like a run and is none, and what a killed write has left."""
    with os.scandir(store) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    halves = [
        name
        for name, is_folder in names
        if is_folder
        and os.path.lexists(store / name / LaunchRecord.KEY)
        and not os.path.lexists(store / name / RunRecord.KEY)
    ]
    if halves:
        seen = f"{_names(halves)}: no {RunRecord.KEY}, so they are no runs"
        yield Check(_AREA, "folder", "warning", seen, "delete them")
    arriving = [name for name, is_folder in names if is_folder and name.startswith(ARRIVING)]
    if arriving:
        copied = _names(name.removeprefix(ARRIVING) for name in arriving)
        seen = f"{copied}: a copy or import of it runs, or was interrupted"
        remedy = f"repeat it, or delete {_names(arriving)}"
        yield Check(_AREA, "folder", "warning", seen, remedy)
    left = [name for name, is_folder in names if not is_folder and name.startswith(TEMPORARY)]
    if left:
        seen = f"{len(left)} files {TEMPORARY}… that killed processes were writing"
        yield Check(_AREA, "folder", "warning", seen, "delete them while nothing writes")


def _left(store: Location, subject: str, seen: str) -> Check:
    return Check(_AREA, subject, "warning", seen, f"vinedresser reconcile {store}")


def _is_dead(parent: Location) -> bool:
    kind = kind_of(parent)
    assert kind in KINDS
    return parent_state(parent, kind) == "dead"


def _is_abandoned(folder: Path) -> bool:
    """Return whether nothing uploads a spool, and what wrote it has ended."""
    lock = lock_spool(folder)
    if lock is None:
        return False
    os.close(lock)
    return run_status(open_storage(folder)).over


def _names(names: Iterable[str]) -> str:
    """Return the first few names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - _MOST} more" if len(listed) > _MOST else ""
    return ", ".join(listed[:_MOST]) + more
