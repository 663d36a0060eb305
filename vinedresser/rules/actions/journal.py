"""The journal of the actions of a rule group, in the run directory."""

from __future__ import annotations

import json
import threading

from vinedresser.errors import CorruptData, KeyMissing
from vinedresser.objects import Storage
from vinedresser.plain_logs import plain_logger
from vinedresser.store.json_values import DAMAGE, parse_json
from vinedresser.store.records import ActionRecord, actions_key

_LOG = plain_logger(__name__)


class Journal:
    """A file with one action per line, replaced as a whole with each new action.

    An action is recorded when it has ended. A restarted judge takes an action again unless it is
    recorded here and did not fail, so actions are taken at least once.

    Args:
        storage: storage of the run.
        group: name of the rule group.

    Raises:
        CorruptData: the file is corrupt.
        StoreError: the storage refused.
    """

    def __init__(self, storage: Storage, group: str) -> None:
        self._storage = storage
        self._key = actions_key(group)
        self._lock = threading.Lock()
        self._logged: set[str] = set()
        try:
            self._lines = storage.get(self._key).decode().splitlines()
            known = [ActionRecord.from_json(parse_json(line)) for line in self._lines]
        except KeyMissing:
            self._lines, known = [], []
        except DAMAGE as error:
            raise CorruptData(
                f"{storage.location}/{self._key}: not a valid journal of actions"
            ) from error
        self._over = {one.id for one in known if one.outcome != "failed"}

    def has(self, identity: str) -> bool:
        """Return whether an action has ended and must not be taken again."""
        with self._lock:
            return identity in self._over

    def add(self, record: ActionRecord) -> None:
        """Append an action; log the first action of each name that was not done.

        Raises:
            StoreError: the storage refused.
        """
        with self._lock:
            if record.outcome != "done" and record.action not in self._logged:
                self._logged.add(record.action)
                _LOG.warning(
                    "%s at step %d: action %s %s: %s",
                    *(record.rule, record.step, record.action),
                    "failed" if record.outcome == "failed" else "was refused",
                    record.detail,
                )
            self._lines.append(json.dumps(record.to_json()))
            if record.outcome != "failed":
                self._over.add(record.id)
            self._storage.put(self._key, ["".join(f"{line}\n" for line in self._lines).encode()])
