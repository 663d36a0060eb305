"""Send the tags that rules give a run to MLflow."""

from __future__ import annotations

import time

from vinedresser.errors import TrackingError
from vinedresser.infra.tracking import set_tags
from vinedresser.store.records import TagsRecord, read_record
from vinedresser.store.storage import Storage

__all__ = ["RuleTags", "rule_tags"]

# Seconds between two updates.
_EVERY = 5.0


def rule_tags(storage: Storage) -> dict[str, str]:
    """Return the tags of a run by their names in MLflow.

    Raises:
        CorruptData: a record of tags cannot be read.
        StoreError: the storage refused a request.
    """
    found: dict[str, str] = {}
    for key in storage.list(f"{TagsRecord.KEY}/"):
        if not key.endswith(".json"):
            continue
        record = read_record(storage, TagsRecord, key=key)
        found |= record.tags if record else {}
    return {f"vinedresser.tag.{rule}": text for rule, text in found.items()}


class RuleTags:
    """Sends the tags of a run while it trains; settling the run sends them again.

    Args:
        storage: storage of the run.
        uri: tracking URI.
        run_id: id of the MLflow run.
    """

    def __init__(self, storage: Storage, uri: str, run_id: str) -> None:
        self._storage = storage
        self._uri = uri
        self._run_id = run_id
        self._sent: dict[str, str] = {}
        self._updated = -float("inf")

    def update(self) -> None:
        """Send changed tags, at most every five seconds.

        Raises:
            CorruptData: a record of tags cannot be read.
            StoreError: the storage refused a request.
        """
        now = time.monotonic()
        if now < self._updated + _EVERY:
            return
        self._updated = now
        tags = rule_tags(self._storage)
        if tags == self._sent:
            return
        try:
            set_tags(self._uri, self._run_id, tags)
        except TrackingError:
            # Retried with the next update; the sink reports that the server is unavailable.
            return
        self._sent = tags
