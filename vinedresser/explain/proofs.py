"""What replays of a run's snapshots proved to cure it."""

from __future__ import annotations

from vinedresser.errors import CorruptData
from vinedresser.objects import Storage
from vinedresser.snapshots.record import SnapshotRecord, step_and_rank
from vinedresser.snapshots.replay_record import read_replay


def proof_of(storage: Storage, faults: list[str]) -> str:
    """Return in words what the latest successful trials cured; "" if nothing was proved.

    Args:
        faults: receives a sentence for each damaged record.

    Raises:
        StoreError: the storage refused.
    """
    try:
        names = storage.folders(f"{SnapshotRecord.KEY}/")
    except CorruptData as error:
        faults.append(str(error))
        return ""
    found = []
    for name in names:
        place = step_and_rank(name)
        replayed = None if place is None else read_replay(storage, name, faults)
        if place is not None and replayed is not None and replayed.cures:
            found.append((replayed.time, place[0], replayed))
    if not found:
        return ""
    _, step, replayed = max(found, key=lambda one: one[:2])
    return f"{replayed.tried}; from step {step}, symptom: {replayed.symptom}"
