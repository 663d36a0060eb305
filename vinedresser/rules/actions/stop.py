"""Asking a training to end."""

from __future__ import annotations

import logging
from typing import ClassVar

from vinedresser.errors import KeyTaken, StoreError
from vinedresser.rules.actions.base import ActionContext, ActionResult
from vinedresser.rules.actions.retry import retry
from vinedresser.store.finding import Finding
from vinedresser.store.records import ExitRecord, StopRecord, write_record
from vinedresser.store.storage import Storage

__all__ = ["StopAction", "StopOnSeverity"]

_LOG = logging.getLogger(__name__)

# Seconds.
_PATIENCE = 300.0


class StopAction:
    """Asks the training to end; the first who asks is the one.

    Args:
        record: who asks, and why.
    """

    name: ClassVar[str] = "stop"

    def __init__(self, record: StopRecord) -> None:
        self._record = record

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`; a store that is away is tried for some minutes."""

        def attempt() -> ActionResult:
            try:
                return self.ask(context.storage)
            except StoreError as error:
                return ActionResult("failed", str(error))

        return retry(attempt, _PATIENCE, context.giving_up)

    def ask(self, storage: Storage) -> ActionResult:
        """Ask the training to end, unless it has ended or somebody else asked before.

        Raises:
            StoreError: the storage refused.
        """
        if storage.exists(ExitRecord.KEY):
            return ActionResult("refused", "the run has ended")
        try:
            write_record(storage, self._record, exclusive=True)
        except KeyTaken:
            reason = self._record.reason
            _LOG.info("%s: was asked to end before: %s", storage.location, reason)
            return ActionResult("refused", "the run was asked to end before")
        return ActionResult("done", "the run is asked to end")


class StopOnSeverity:
    """What follows a finding where nobody says otherwise: one of severity "stop" ends the run.

    Args:
        storage: the run's.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def stops(self, finding: Finding) -> bool:
        """Say whether a finding ends the run."""
        return finding.severity == "stop"

    def stop(self, fatal: Finding, record: StopRecord) -> None:  # noqa: ARG002 (as a `Stopping`)
        """Ask the training to end.

        Args:
            fatal: the finding that ends it.
            record: who asks, and why.

        Raises:
            StoreError: the storage refused.
        """
        StopAction(record).ask(self._storage)
