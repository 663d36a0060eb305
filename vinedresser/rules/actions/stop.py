"""The action that requests the stop of a training."""

from __future__ import annotations

from typing import ClassVar

from vinedresser.errors import KeyTaken, StoreError
from vinedresser.objects import Storage
from vinedresser.plain_logs import plain_logger
from vinedresser.rules.actions.base import ActionContext, ActionResult, retry
from vinedresser.store.finding import Finding
from vinedresser.store.records import ExitRecord, StopRecord, write_record

__all__ = ["StopAction", "StopOnSeverity"]

_LOG = plain_logger(__name__)

# Seconds to retry while the store is unavailable.
_PATIENCE = 300.0


class StopAction:
    """Requests the stop of the training; an earlier request stays in force.

    Args:
        record: origin of and reason for the request.
    """

    name: ClassVar[str] = "stop"

    def __init__(self, record: StopRecord) -> None:
        self._record = record

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`; retry for some minutes while the store is unavailable."""

        def attempt() -> ActionResult:
            try:
                return self.ask(context.storage)
            except StoreError as error:
                return ActionResult("failed", str(error))

        return retry(attempt, _PATIENCE, context.giving_up)

    def ask(self, storage: Storage) -> ActionResult:
        """Request the stop, unless the run has ended or there is an earlier request.

        Raises:
            StoreError: the storage refused.
        """
        if storage.exists(ExitRecord.KEY):
            return ActionResult("refused", "the run has ended")
        try:
            write_record(storage, self._record, exclusive=True)
        except KeyTaken:
            reason = self._record.reason
            _LOG.info("%s: a stop was requested before: %s", storage.location, reason)
            return ActionResult("refused", "a stop was requested before")
        return ActionResult("done", "requested the stop")


class StopOnSeverity:
    """The default `Stopping`: findings of severity "stop" stop the run at once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def stops(self, finding: Finding) -> bool:
        """Return whether a finding stops the run."""
        return finding.severity == "stop"

    def stop(self, fatal: Finding, record: StopRecord) -> None:  # noqa: ARG002 (as a `Stopping`)
        """Request the stop of the training.

        Args:
            record: origin of and reason for the request.

        Raises:
            StoreError: the storage refused.
        """
        StopAction(record).ask(self._storage)
