"""The tags that rules give a run, into MLflow."""

from __future__ import annotations

import time

from vinedresser.errors import TrackingError
from vinedresser.infra.tracking import set_tags
from vinedresser.store.records import TagsRecord, read_record
from vinedresser.store.storage import Storage

__all__ = ["RuleTags", "rule_tags"]

# Seconds between two looks.
_LOOK = 5.0


def rule_tags(storage: Storage) -> dict[str, str]:
    """Return the tags of a run by their names in MLflow.

    Raises:
        CorruptData: a record of tags is none.
        StoreError: the storage refused.
    """
    found: dict[str, str] = {}
    for key in storage.list(f"{TagsRecord.KEY}/"):
        record = read_record(storage, TagsRecord, key=key)
        found |= record.tags if record else {}
    return {f"vinedresser.tag.{rule}": said for rule, said in found.items()}


class RuleTags:
    """Sends the tags of a run while it trains; at its end they are sent again, come what may.

    Args:
        storage: the run's.
        uri: tracking URI.
        run_id: MLflow's run.
    """

    def __init__(self, storage: Storage, uri: str, run_id: str) -> None:
        self._storage = storage
        self._uri = uri
        self._run_id = run_id
        self._sent: dict[str, str] = {}
        self._looked_at = -float("inf")

    def look(self) -> None:
        """Send what is new, at most every five seconds.

        Raises:
            CorruptData: a record of tags is none.
            StoreError: the storage refused.
        """
        now = time.monotonic()
        if now < self._looked_at + _LOOK:
            return
        self._looked_at = now
        tags = rule_tags(self._storage)
        if tags == self._sent:
            return
        try:
            set_tags(self._uri, self._run_id, tags)
        except TrackingError:
            # They are tried again at the next look; the sink tells that the server is away.
            return
        self._sent = tags
