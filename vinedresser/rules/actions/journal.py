"""The journal of the actions of a rule group, in the run directory."""

from __future__ import annotations

import json
import threading

from vinedresser.errors import CorruptData, KeyMissing
from vinedresser.objects import Storage
from vinedresser.rules.actions.plan import MESSAGES
from vinedresser.store.json_values import DAMAGE, parse_json
from vinedresser.store.records import ActionRecord, actions_key, known_keys

__all__ = ["Journal", "unsent"]


class Journal:
    """A file with one action per line, replaced as a whole with each new action.

    An action is recorded when it has ended. A restarted judge takes an action again unless it is
    recorded here and did not fail, so actions are taken at least once.

    Args:
        group: name of the rule group.

    Raises:
        CorruptData: the file is corrupt.
        StoreError: the storage refused.
    """

    def __init__(self, storage: Storage, group: str) -> None:
        self._storage = storage
        self._key = actions_key(group)
        self._lock = threading.Lock()
        try:
            self._lines = storage.get(self._key).decode().splitlines()
            known = [ActionRecord.from_json(parse_json(line)) for line in self._lines]
        except KeyMissing:
            self._lines, known = [], []
        except DAMAGE as error:
            raise CorruptData(
                f"{storage.location}/{self._key}: not a valid journal of actions"
            ) from error
        self._over = {one.id: one for one in known if one.outcome != "failed"}

    def has(self, identity: str) -> bool:
        """Return whether an action has ended and must not be taken again."""
        return self.get(identity) is not None

    def get(self, identity: str) -> ActionRecord | None:
        """Return an action that has ended and must not be taken again; None if it has not."""
        with self._lock:
            return self._over.get(identity)

    def add(self, record: ActionRecord) -> None:
        """Append an action.

        Raises:
            StoreError: the storage refused.
        """
        with self._lock:
            self._lines.append(json.dumps(record.to_json()))
            if record.outcome != "failed":
                self._over[record.id] = record
            self._storage.put(self._key, ["".join(f"{line}\n" for line in self._lines).encode()])


def unsent(storage: Storage, faults: list[str]) -> list[str]:
    """Return a sentence for each action whose last message about a run was not sent.

    Args:
        faults: receives a sentence for each damaged journal.

    Raises:
        StoreError: the storage refused.
    """
    last: dict[str, ActionRecord] = {}
    for key in known_keys(storage, ActionRecord.KEY, faults):
        try:
            lines = storage.get(key).decode().splitlines()
            records = [ActionRecord.from_json(parse_json(line)) for line in lines]
        except DAMAGE as error:
            faults.append(f"{key}: not a valid journal of actions: {error}")
            continue
        last |= {record.action: record for record in records if record.action in MESSAGES}
    return [
        f"action {name} {'failed' if one.outcome == 'failed' else 'was refused'}: {one.detail}"
        for name, one in sorted(last.items())
        if one.outcome != "done"
    ]
