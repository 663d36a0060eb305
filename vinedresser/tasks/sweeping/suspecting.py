"""What the judges of a trial suspect at a value that it reported."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from vinedresser.rules.suspicions import read_suspicions
from vinedresser.store.storage import Storage
from vinedresser.sweeps.trial import TrialEnd

__all__ = ["Suspects"]

# Not Prefect's: who asks may be a thread that has no task.
_log = logging.getLogger(__name__)

# Seconds that the judges are given to come to a step: they are some tenths of one behind a
# training, and one that has just been started a second.
_PATIENCE = 5.0
_LOOK = 0.02


class Suspects:
    """Asks the judges of a run what they suspect.

    Judges that were behind once are waited for no more until they have caught up, so that
    following a quick training takes no longer than judging it.

    Args:
        storage: of the run.
        groups: of its rules.
        name: of the trial.
    """

    def __init__(self, storage: Storage, groups: Iterable[str], name: str) -> None:
        self._storage = storage
        self._groups = tuple(groups)
        self._name = name
        self._patience = _PATIENCE
        self._told = False

    def at(self, step: int) -> TrialEnd | None:
        """Return how a rule would end the trial if the outcome agreed, once it has seen a step.

        Args:
            step: at which a value was reported.

        Returns:
            Of the first rule that would: of the groups in their order, and in a group in that of
            cause and effect. None where none would, or where the judges have not come so far in
            five seconds, which is logged once.

        Raises:
            StoreError: the store refused.
        """
        deadline = time.monotonic() + self._patience
        first = None
        for group in self._groups:
            while (found := read_suspicions(self._storage, group)) is None or found[0] < step:
                if time.monotonic() >= deadline:
                    self._is_behind(group)
                    return first
                time.sleep(_LOOK)
            if first is None and found[1]:
                one = found[1][0]
                first = TrialEnd("stopped", one.seen, one.rule, one.fault, one.remedy)
        self._patience = _PATIENCE
        return first

    def _is_behind(self, group: str) -> None:
        self._patience = 0.0
        if not self._told:
            _log.warning(
                "%s: its judge %s is behind; compared without what it suspects", self._name, group
            )
        self._told = True
