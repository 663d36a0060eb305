"""Reading what was changed in a training from outside."""

from __future__ import annotations

from vinedresser.errors import ConfigError
from vinedresser.objects import open_storage
from vinedresser.store.records import ControlRecord, read_journal


def changes_of(location: str) -> list[ControlRecord]:
    """Return the journal of a run, to make its changes again; [] without a location.

    Raises:
        ConfigError: the run has no journal, or a damaged one.
        StoreError: the storage refused.
    """
    if not location:
        return []
    faults: list[str] = []
    found = read_journal(open_storage(location), ControlRecord, faults)
    if faults or not found:
        why = faults[0] if faults else f"{location}: nothing was changed in this run"
        raise ConfigError(f"live.replay: {why}")
    return found
