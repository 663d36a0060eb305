"""Evidence of drift in several streams of values, from rows that are nearly independent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.evidence.bins import Edges, counted
from vinedresser.drift.evidence.changes import ChangeEvidence
from vinedresser.drift.evidence.dependence import SHARED, TOO_FAR, Dependence, rows_to_settle
from vinedresser.drift.evidence.likelihood import array_of

__all__ = ["Spacing", "Streams", "WholeCycles"]

# Rows without which nothing is known about their dependence, and without which a second window has
# to confirm it: in fewer, two sessions look like the two sides of a jump.
_LEAST, _ENOUGH = 100, 400
# So many rows may be one session, at most. The more rows and columns there were, the clearer it is
# that they are not.
_SESSION = 30
# Rows of a cycle that is seen to be none of a few rows by its jumps and slopes.
_SHORT = 400


class WholeCycles:
    """Cuts windows where cycles are complete.

    Args:
        length: rows of a cycle.
    """

    def __init__(self, length: float) -> None:
        self.length = length
        self._rows = 0

    def completed(self, rows: int) -> int:
        """Add rows, and return how many of them belong to cycles that are complete with them."""
        before, self._rows = self._rows, self._rows + rows
        end = math.ceil(math.floor(self._rows / self.length) * self.length)
        return max(end - before, 0)

    def state(self) -> int:
        """Return what `resume` needs, JSON-able."""
        return self._rows

    def resume(self, state: int) -> None:
        """Continue from a state."""
        self._rows = int(state)


class Spacing:
    """Chooses rows that are nearly independent, in each of several streams.

    Args:
        least: int64 [streams], smallest distance between chosen rows, always.
        together: number of successive streams that are columns of the same rows. What most of them
            show of the dependence of the rows holds for all.
        known: correlations of the rows of the baseline; see `Dependence`.
        whole: rows of a cycle of which only whole ones are compared; 0.0: each window is. Within a
            cycle, rows differ in a way that looks like dependence. So in a short one, the smallest
            distance is the distance.
        confirms: whether a second window has to confirm what few rows show of their dependence.
        told: float64 [streams], see `Dependence.settled`, if the baseline tells nothing of
            dependence. Until it is settled, only rows a window apart are used, as sessions may be
            as long.
    """

    def __init__(
        self,
        least: NDArray[np.int64],
        together: int,
        *,
        known: NDArray[np.float64] | None = None,
        whole: float = 0.0,
        confirms: bool = False,
        told: NDArray[np.float64] | None = None,
    ) -> None:
        self._least, self._together, self._told = least, together, told
        self._fixed = 0 < whole < _SHORT and told is None
        self._dependence = Dependence(
            len(least),
            known=known,
            changes="each" if whole else "one",
            together=together,
            long=told is not None,
        )
        self._confirms, self._windows = confirms and not whole and told is None, 0
        # Rows since the last one that was chosen.
        self._since = np.full(len(least), TOO_FAR)
        self.distances = least.copy()
        """int64 [streams], distance between chosen rows now; `TOO_FAR` where none are."""
        self.shared = np.ones(len(least) // max(together, 1), np.int64)
        """int64 [groups], distance that the streams of a group have in common."""

    @property
    def waiting(self) -> bool:
        """Whether there have been too few rows to know whether they depend on each other."""
        return self._too_few or self.provisional

    @property
    def unsettled(self) -> NDArray[np.bool_]:
        """Of which streams only rows a window apart are used, bool [streams]."""
        if self._told is None:
            return np.zeros(len(self._least), bool)
        return ~self._dependence.settled(self._told)

    def needed(self, streams: Sequence[int], window: int) -> float:
        """Return after how many rows, in windows of so many, none of some streams is unsettled."""
        if self._told is None:
            return 0.0
        return rows_to_settle(window, float(self._told[list(streams)].min()))

    @property
    def provisional(self) -> bool:
        """Whether a second window has to confirm that the rows are chosen as they should be."""
        return self.young and self._windows < 2

    @property
    def young(self) -> bool:
        """Whether few rows were chosen by what few rows show of their dependence."""
        return self._confirms and self._dependence.rows < _ENOUGH

    @property
    def alike(self) -> float:
        """Number of rows that may tell as little as one, for all that is known so far.

        It is 1 if rows of the baseline depend on each other, too: then it shows how much.
        """
        if not self._confirms or self._least.max() > 1:
            return 1.0
        return max(_SESSION * (1 - self._dependence.rows / _ENOUGH) / self._together, 1.0)

    @property
    def _too_few(self) -> bool:
        """Whether there have been too few rows to choose any."""
        return not self._fixed and self._dependence.rows < _LEAST

    def chosen(
        self,
        bins: NDArray[np.uint8],
        least: int = 1,
        *,
        phase: NDArray[np.int64] | None = None,
        total: NDArray[np.float64] | None = None,
    ) -> NDArray[np.bool_]:
        """Return which rows are nearly independent of each other and of those chosen before.

        Args:
            bins: uint8 [rows, streams], successive rows.
            least: smallest distance between chosen rows in this window.
            phase: see `Dependence.update`.
            total: see `Dependence.update`.

        Returns:
            bool [rows, streams].
        """
        self._windows += 1
        found = self._least if self._fixed else self._dependence.update(bins, phase, total)
        found = found.reshape(-1, self._together)
        shared = np.sort(found, axis=1)[:, math.ceil(SHARED * (self._together - 1)), None]
        self.shared = shared[:, 0].astype(np.int64)
        self.distances = np.maximum(np.maximum(found, shared).ravel(), self._least).clip(least)
        apart = self.unsettled * max(len(bins), _LEAST)
        self.shared = np.maximum(self.shared, apart.reshape(-1, self._together).max(1))
        self.distances = np.maximum(self.distances, apart)
        rows = np.arange(len(bins))[:, None]
        first = np.maximum(self.distances - self._since - 1, 0)
        used = (rows >= first) & ((rows - first) % self.distances == 0)
        used &= (self.distances < TOO_FAR) & (not self._too_few)
        last = np.where(used, rows, -1).max(0, initial=-1)
        self._since = np.where(last < 0, self._since + len(bins), len(bins) - 1 - last)
        self._since = np.minimum(self._since, TOO_FAR)
        return np.asarray(used)

    def state(self) -> dict[str, Any]:
        """Return what `resume` needs, JSON-able."""
        return {
            "dependence": self._dependence.state(),
            "windows": self._windows,
            "since": self._since.tolist(),
            "distances": self.distances.tolist(),
            "shared": self.shared.tolist(),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: it is not a state of as many streams.
        """
        shape = self._least.shape
        self._dependence.resume(state["dependence"])
        self._windows = int(state["windows"])
        self._since = array_of(state, "since", shape).astype(np.int64)
        self.distances = array_of(state, "distances", shape).astype(np.int64)
        self.shared = array_of(state, "shared", self.shared.shape).astype(np.int64)


class Streams:
    """Evidence of drift in several streams.

    Args:
        edges: bins of the streams.
        distances: int64 [streams], smallest distance between rows that are used.
        together: see `Spacing`.
        known: see `Spacing`.
        whole: rows of a cycle of which only whole ones are compared; 0.0: each window is.
        confirms: see `Spacing`. Until then, there is no wealth; and if rows turn out to depend on
            each other more, what they seemed to show is forgotten. What cannot raise an alarm
            spends nothing of the budget.
        told: see `Spacing`.
    """

    def __init__(
        self,
        edges: Edges,
        distances: NDArray[np.int64],
        together: int,
        *,
        known: NDArray[np.float64] | None = None,
        whole: float = 0.0,
        confirms: bool = False,
        told: NDArray[np.float64] | None = None,
    ) -> None:
        self._edges = edges
        self.whole = whole
        """Rows of a cycle of which only whole ones are compared; 0.0: each window is."""
        self.spacing = Spacing(
            distances, together, known=known, whole=whole, confirms=confirms, told=told
        )
        self._together = together
        # Distances by which few rows were chosen.
        self._provisional: NDArray[np.int64] | None = None
        self.changes = ChangeEvidence(edges.gaps)
        self._cycles = WholeCycles(whole) if whole else None
        # Of the cycle that is not complete: values, and the window in which it began.
        self._pending, self._began = np.zeros_like(edges.gaps), 0

    def update(
        self,
        values: NDArray[np.float64],
        ties: NDArray[np.float64],
        present: NDArray[np.bool_] | None = None,
        phase: NDArray[np.int64] | None = None,
        shown: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.float64]:
        """Add a window.

        Args:
            values: float64 [rows, streams], successive rows; NaN is missing.
            ties: float64 [rows, streams], uniform in [0, 1).
            present: bool [streams], streams that have values in this window; None: all.
            phase: int64 [rows], phase of each row in a cycle; None: there is a single one.
            shown: uint8 [rows, streams], bins that show how rows depend on each other; None: the
                ones in which they are counted.

        Returns:
            The log of the wealth of each stream, float64 [streams], in nats.
        """
        bins = self._edges.bins(values, ties, phase)
        phases = self._edges.gaps.shape[1]
        total = self.changes.urn.total if phases > 1 else None
        used = self.spacing.chosen(bins if shown is None else shown, phase=phase, total=total)
        if present is not None:
            used &= present
        if self._provisional is not None:
            farther = (self.spacing.distances > self._provisional).reshape(-1, self._together)
            self.changes.forget(np.repeat(farther.any(1), self._together))
        self._provisional = self.spacing.distances if self.spacing.young else None
        if self._cycles is None:
            evidence = self.changes.update(counted(bins, used, phase, phases))
            return evidence * (not self.spacing.provisional) / self.spacing.alike
        end = self._cycles.completed(len(bins))
        self._pending += counted(bins[:end], used[:end])
        rest = counted(bins[end:], used[end:])
        if end == 0:
            self._pending += rest
            return self.changes.wait()
        evidence = self.changes.update(self._pending, self._began)
        self._pending, self._began = rest, self.changes.windows - (end < len(bins))
        return evidence

    @property
    def candidates(self) -> tuple[int, ...]:
        """Windows at which a change may have begun, that of the present cycle included."""
        began = () if self._cycles is None else (self._began,)
        return (*self.changes.candidates, *began)

    def state(self) -> dict[str, Any]:
        """Return what `resume` needs, JSON-able."""
        found = {
            "spacing": self.spacing.state(),
            "changes": self.changes.state(),
            "provisional": None if self._provisional is None else self._provisional.tolist(),
        }
        if self._cycles is not None:
            found["cycle"] = {
                "rows": self._cycles.state(),
                "pending": self._pending.astype(int).tolist(),
                "began": self._began,
            }
        return found

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a state.

        Raises:
            ValueError: it is not a state of as many streams.
        """
        self.spacing.resume(state["spacing"])
        self.changes.resume(state["changes"])
        self._provisional = None
        if state["provisional"] is not None:
            shape = self.spacing.distances.shape
            self._provisional = array_of(state, "provisional", shape).astype(np.int64)
        if self._cycles is not None:
            self._cycles.resume(state["cycle"]["rows"])
            self._pending = array_of(state["cycle"], "pending", self._pending.shape)
            self._began = int(state["cycle"]["began"])
