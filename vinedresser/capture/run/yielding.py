"""What an attachment does when the script turns out to have a hook of its own."""

from __future__ import annotations

from vinedresser.capture.run.attachment import ATTACHMENT
from vinedresser.capture.run.claims import claim
from vinedresser.capture.run.environment import Environment
from vinedresser.capture.run.opening import OpenedRun, launched_run
from vinedresser.store.records import ClaimRecord
from vinedresser.store.storage import open_storage

__all__ = ["yield_run"]


def yield_run(environment: Environment) -> OpenedRun:
    """Open the run for a hook that the script of a launched process makes by itself.

    Whatever was attached to this process lets go. Where an attached hook had the run already, there
    or in another process, the script's own gets a further one.

    Raises:
        NotARun: there is no run for which this process was launched.
        CorruptData: a record cannot be read.
        StoreError: the storage refused.
    """
    ATTACHMENT.retire()
    if open_storage(environment.run).exists(ClaimRecord.KEY):
        return claim(environment)
    return launched_run(environment.run)
