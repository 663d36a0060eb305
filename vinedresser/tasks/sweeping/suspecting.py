"""The suspicions of a trial's judges at a value that it reported."""

from __future__ import annotations

import time
from collections.abc import Iterable

from vinedresser.objects import Storage
from vinedresser.plain_logs import plain_logger
from vinedresser.rules.causes.suspicions import read_suspicions
from vinedresser.sweeps.trial import TrialEnd

# Not Prefect's logger: the calling thread may have no task.
_log = plain_logger(__name__)

# Seconds that the judges have to reach a step: they run some tenths of a second behind a training,
# and a judge that has just been started a second.
_PATIENCE = 5.0
_LOOK = 0.02


class Suspects:
    """Reads the suspicions of a run's judges.

    A judge that was behind once is not awaited again until it has caught up, so that following a
    quick training takes no longer than judging it.

    Args:
        groups: its rule groups.
        name: name of the trial.
    """

    def __init__(self, storage: Storage, groups: Iterable[str], name: str) -> None:
        self._storage = storage
        self._groups = tuple(groups)
        self._name = name
        self._patience = _PATIENCE
        self._told = False

    def at(self, step: int) -> TrialEnd | None:
        """Return how a rule would end the trial at a step if the outcome agreed.

        Args:
            step: step at which a value was reported.

        Returns:
            The suspicion of the first rule that has one: groups in their order, the rules of a
            group in the order of cause and effect. None if there is none, or if a judge has not
            reached the step within five seconds, which is logged once.

        Raises:
            StoreError: the store refused a request.
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
                "%s: its judge %s is behind; compared without its suspicions", self._name, group
            )
        self._told = True
