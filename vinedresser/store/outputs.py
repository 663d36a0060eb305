"""What a script made for SageMaker's containers leaves in its run directory."""

from __future__ import annotations

from vinedresser.objects import Storage
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.records import LaunchRecord

_FOLDERS = ("model", "output/data")


def outputs_note(storage: Storage, faults: list[str]) -> str:
    """Return the folders of results and their numbers of files; "" if the run has no contract.

    Args:
        faults: receives a sentence about a damaged record.

    Raises:
        StoreError: the storage refused.
    """
    launch = read_record_or_none(storage, LaunchRecord, LaunchRecord.KEY, faults)
    if launch is None or not launch.contract:
        return ""
    counts = {folder: len(list(storage.list(f"{folder}/"))) for folder in _FOLDERS}
    found = (f"{folder} ({count})" for folder, count in counts.items() if count)
    return ", ".join(found) or "none"
