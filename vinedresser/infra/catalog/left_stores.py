"""Stores in which a crash has left runs or flow runs, as far as this user's state folder says."""

from __future__ import annotations

from pathlib import Path

from vinedresser.infra.catalog.flow_records import dead_in
from vinedresser.infra.catalog.run_notes import RunNote
from vinedresser.infra.catalog.state_folder import private_folder, state_folder
from vinedresser.objects import LocalStorage, Location, parse_location
from vinedresser.processes import ProcessIdentity, is_alive
from vinedresser.store.liveness import read_record_or_none


def left_stores(faults: list[str]) -> list[Location]:
    """Return the stores of flow runs and runs whose process is gone, each once.

    Args:
        faults: receives a sentence for each damaged record.

    Raises:
        StoreError: the state folder cannot be read.
    """
    found: dict[str, None] = {}
    folder = private_folder(private_folder(state_folder()) / "stores")
    for state in sorted(folder.iterdir()):
        storage = LocalStorage(state)
        found |= {flow.store: None for flow in dead_in(storage, faults) if flow.store}
        for key in storage.list(f"{RunNote.KEY}/"):
            note = read_record_or_none(storage, RunNote, key, faults)
            if note is not None and is_alive(ProcessIdentity(**note.owner)) is False:
                found[_parent(note.directory)] = None
    return [parse_location(store) for store in found]


def _parent(directory: str) -> str:
    return directory.rpartition("/")[0] if "://" in directory else str(Path(directory).parent)
