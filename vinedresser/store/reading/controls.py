"""Reading what was changed in a training from outside."""

from __future__ import annotations

from vinedresser.errors import ConfigError
from vinedresser.objects import Storage, open_storage
from vinedresser.objects.base import get_or_none
from vinedresser.store.json_values import parse_json
from vinedresser.store.records import ControlRecord, read_json_lines

__all__ = ["changes_of", "read_controls"]


def read_controls(storage: Storage, faults: list[str]) -> list[ControlRecord]:
    """Return the journal of a run's changes, in order.

    Args:
        faults: receives one sentence if lines are damaged.

    Raises:
        StoreError: the storage refused.
    """
    return read_json_lines(
        get_or_none(storage, ControlRecord.KEY) or b"",
        lambda line: ControlRecord.from_json(parse_json(line)),
        place=f"{storage.location}/{ControlRecord.KEY}",
        what="a change",
        faults=faults,
    )


def changes_of(location: str) -> list[ControlRecord]:
    """Return the journal of a run, to make its changes again; [] without a location.

    Raises:
        ConfigError: the run has no journal, or a damaged one.
        StoreError: the storage refused.
    """
    if not location:
        return []
    faults: list[str] = []
    found = read_controls(open_storage(location), faults)
    if faults or not found:
        why = faults[0] if faults else f"{location}: nothing was changed in this run"
        raise ConfigError(f"live.replay: {why}")
    return found
