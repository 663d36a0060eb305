"""What the judges of a trial suspect at a value that it reported."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from vinedresser.infra.storage import Storage
from vinedresser.rules.suspicions import read_suspicions
from vinedresser.sweeps.trial import Ending

__all__ = ["suspicion_at"]

# Not Prefect's: who asks may be a thread that has no task.
_log = logging.getLogger(__name__)

# Seconds that the judges are given to come to a step: they are some tenths of one behind a
# training, and one that has just been started a second.
_PATIENCE = 5.0
_LOOK = 0.02


def suspicion_at(storage: Storage, groups: Iterable[str], step: int, name: str) -> Ending | None:
    """Return how the rules of a trial would end it if the outcome agreed, once they have seen it.

    Args:
        storage: of the trial's run.
        groups: of its rules.
        step: at which a value was reported.
        name: of the trial.

    Returns:
        Of the first rule that would: of the groups in their order, and in a group in that of cause
        and effect. None where none would, or where the judges have not come so far in five seconds,
        which is logged.

    Raises:
        StoreError: the store refused.
    """
    deadline = time.monotonic() + _PATIENCE
    first = None
    for group in groups:
        while (found := read_suspicions(storage, group)) is None or found[0] < step:
            if time.monotonic() > deadline:
                _log.warning(
                    "%s: its judge %s is behind; compared without what it suspects", name, group
                )
                return first
            time.sleep(_LOOK)
        if first is None and found[1]:
            one = found[1][0]
            first = Ending("stopped", one.seen, one.rule, one.fault, one.remedy)
    return first
