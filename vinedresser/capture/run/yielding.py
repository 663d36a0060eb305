"""Handing the launched run over to the script's own hook."""

from __future__ import annotations

from vinedresser.capture.run.attachment import ATTACHMENT
from vinedresser.capture.run.claims import claim
from vinedresser.capture.run.environment import Environment
from vinedresser.capture.run.opening import OpenedRun, launched_run
from vinedresser.store.records import ClaimRecord
from vinedresser.store.storage import open_storage

__all__ = ["yield_run"]


def yield_run(environment: Environment) -> OpenedRun:
    """Open the run for a hook that a launched script creates itself.

    Attached hooks of this process are closed. If an attached hook, in this or another process, has
    already claimed the launched run, open an additional run.

    Raises:
        NotARun: the launched run is missing.
        CorruptData: a record is invalid.
        SecondWriter: there were too many trainings.
        StoreError: the storage failed.
    """
    ATTACHMENT.retire()
    if open_storage(environment.run).exists(ClaimRecord.KEY):
        return claim(environment)
    return launched_run(environment.run)
