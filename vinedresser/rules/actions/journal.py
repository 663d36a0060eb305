"""What was done about the findings of one rule group, in the run directory."""

from __future__ import annotations

import json
import logging
import threading

from vinedresser.errors import CorruptData, KeyMissing
from vinedresser.store.records import ActionRecord, actions_key
from vinedresser.store.storage import Storage

__all__ = ["Journal"]

_LOG = logging.getLogger(__name__)


class Journal:
    """A file with one action per line, replaced as a whole at each new one.

    It is written when an action is over. A judge that is killed before takes it again when it is
    started again: at least once. What is in here, and did not fail, is not taken again.

    Args:
        storage: the run's.
        group: of the rules.

    Raises:
        CorruptData: the file is not one of these.
        StoreError: the storage refused.
    """

    def __init__(self, storage: Storage, group: str) -> None:
        self._storage = storage
        self._key = actions_key(group)
        self._lock = threading.Lock()
        self._told: set[str] = set()
        try:
            self._lines = storage.get(self._key).decode().splitlines()
            known = [ActionRecord.from_json(json.loads(line)) for line in self._lines]
        except KeyMissing:
            self._lines, known = [], []
        except (ValueError, TypeError) as error:
            raise CorruptData(f"{storage.location}/{self._key}: not a file of actions") from error
        self._over = {one.id for one in known if one.outcome != "failed"}

    def has(self, identity: str) -> bool:
        """Say whether an action is over, and not to be taken again."""
        with self._lock:
            return identity in self._over

    def add(self, record: ActionRecord) -> None:
        """Append an action; one that was not done is told in the log, of each name once.

        Raises:
            StoreError: the storage refused.
        """
        with self._lock:
            if record.outcome != "done" and record.action not in self._told:
                self._told.add(record.action)
                _LOG.warning(
                    "%s at step %d: the action %s %s: %s",
                    *(record.rule, record.step, record.action),
                    "failed" if record.outcome == "failed" else "was refused",
                    record.detail,
                )
            self._lines.append(json.dumps(record.to_json()))
            if record.outcome != "failed":
                self._over.add(record.id)
            self._storage.put(self._key, ["".join(f"{one}\n" for one in self._lines).encode()])
