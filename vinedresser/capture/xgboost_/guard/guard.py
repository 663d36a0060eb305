"""The guard of a training of XGBoost: looks at the gradients of custom objectives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from xgboost import Booster

from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.snapshot_taker import SnapshotTaker
from vinedresser.capture.xgboost_.guard.guarded_round import GuardedRound
from vinedresser.capture.xgboost_.guard.updates import (
    ObjectiveCall,
    guard_updates,
    release_updates,
)
from vinedresser.frameworks.xgboost_.objectives import SOURCE, all_finite, environment
from vinedresser.snapshots.arrays import ArrayCodec
from vinedresser.snapshots.trees import Codec

__all__ = ["ObjectiveGuard", "guard_of"]


class ObjectiveGuard:
    """Looks at what the custom objectives of a training return, and provides snapshots.

    Args:
        taker: takes the snapshots.
        boosters: the boosters by the prefix of their fold.
    """

    def __init__(
        self, session: Session, taker: SnapshotTaker, boosters: Mapping[str, Booster]
    ) -> None:
        self._taker = taker
        self._report = session.shield.report
        self._boosters = boosters
        self._round: GuardedRound | None = None
        look = session.shield.guard("the guard, at an objective", self._look, metered=False)
        for booster in boosters.values():
            guard_updates(booster, look)

    @property
    def codec(self) -> Codec:
        """See `SnapshotSource.codec`."""
        return ArrayCodec()

    def remove(self) -> None:
        """Leave the objectives alone again."""
        for booster in self._boosters.values():
            release_updates(booster)
        if self._taker.sources.get(SOURCE) is self:
            del self._taker.sources[SOURCE]

    def contents(self) -> dict[str, Any]:
        """See `SnapshotSource.contents`."""
        return {} if self._round is None else self._round.contents()

    def shared(self) -> dict[str, Any]:
        """See `SnapshotSource.shared`."""
        return {}

    def inexact(self) -> list[str]:
        """See `SnapshotSource.inexact`."""
        found = ["the features are not kept: an objective that reads them cannot run again"]
        if self._round is not None and self._round.call.objective is None:
            found.append("the gradients may be those of other predictions than the booster's own")
        return found

    def environment(self) -> dict[str, Any]:
        """See `SnapshotSource.environment`."""
        return environment()

    def _look(self, call: ObjectiveCall) -> None:
        """Take the snapshots that are due before a round's trees are grown.

        Raises:
            TrainingStopped: a value is not finite, and the settings say so.
        """
        taker, returned = self._taker, call.returned
        taker.sources.setdefault(SOURCE, self)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            return
        if not all(isinstance(one, np.ndarray) for one in returned):
            self._report("the guard looks only at gradients of objectives that are numpy arrays")
            return
        alarming = taker.guarding and not all(map(all_finite, returned))
        # What an earlier alarm has spoilt tells nothing new.
        alarming = alarming and (not taker.alarmed or all_finite(call.predictions))
        if not (alarming or taker.due()):
            return
        fold = next(fold for fold, one in self._boosters.items() if one is call.booster)
        self._round = GuardedRound(fold.rstrip("."), call, *returned)
        try:
            if alarming:
                taker.alarm(self._round.alarm())
            else:
                taker.take_periodic()
        finally:
            self._round = None


def guard_of(session: Session, boosters: Mapping[str, Booster]) -> ObjectiveGuard | None:
    """Return the guard of a training; None if nobody wants snapshots.

    Args:
        session: session of the hook.
        boosters: the boosters by the prefix of their fold.
    """
    if session.snapshots is None:
        return None
    return ObjectiveGuard(session, session.snapshots, boosters)
