"""One tensor of a run along its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.capture.store.column_reading import read_columns
from vinedresser.capture.store.dtypes import numpy_dtype
from vinedresser.capture.store.history import History
from vinedresser.capture.store.index import TensorGroup
from vinedresser.capture.store.layout import TensorLayout
from vinedresser.capture.store.problems import Problems
from vinedresser.capture.store.series import Column
from vinedresser.capture.store.step_record import MODES, Mode
from vinedresser.errors import UnknownStep, UnknownTensor, did_you_mean

__all__ = ["TensorView"]


class TensorView:
    """One tensor's values and statistics, read when asked for; made by `Run.tensor`.

    Args:
        name: its name.
        histories: of the run's ranks.
        problems: where damage is noted.

    Attributes:
        name: its name, such as "gradients/conv1.weight".
    """

    def __init__(self, name: str, histories: Mapping[int, History], problems: Problems) -> None:
        self.name = name
        self._histories = histories
        self._problems = problems

    def __repr__(self) -> str:
        return f"TensorView({self.name})"

    def steps(self, mode: Mode | None = "train", rank: int = 0) -> NDArray[np.int64]:
        """Return the steps at which it was captured in full, ascending, each once; int64, [N]."""
        history = self._histories.get(rank)
        if history is None:
            return np.empty(0, np.int64)
        found = [
            history.ordinals(number, group)
            for number, segment in enumerate(history.segments)
            for group in segment.groups_of(self.name)
        ]
        ordinals = np.concatenate([np.empty(0, np.int64), *found])
        return history.steps_of(ordinals, mode)

    def value(self, step: int, mode: Mode = "train", rank: int = 0) -> NDArray[Any]:
        """Return the tensor at a step; read-only, bfloat16 and float8 as `ml_dtypes`.

        Of several records with this mode and step the last one that has the tensor counts.

        Raises:
            UnknownStep: it was not captured in full there; the message names the nearest steps.
            Damaged: the bytes on disk do not match their checksum; the message names the file.
        """
        history = self._histories.get(rank)
        found = history and history.find(self.name, step, mode)
        if found:
            segment, group, place = found
            return segment.tensor(group, self.name, place)
        raise UnknownStep(
            f"{self.name}: not captured in full at {mode} step {step} of rank {rank}"
            + self._hint(step, mode, rank)
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape where it was last captured in full.

        Raises:
            UnknownStep: only its statistics were captured.
        """
        layout = self._last_layout()
        return layout.shapes[layout.places[self.name]]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype where it was last captured in full.

        Raises:
            UnknownStep: only its statistics were captured.
        """
        return numpy_dtype(self._last_layout().dtype)

    @property
    def reductions(self) -> tuple[str, ...]:
        """Names of the statistics that were captured of it, at any step."""
        found = (
            layout.reductions or ()
            for history in self._histories.values()
            for layout in history.column_layouts
            if self.name in layout.places
        )
        return tuple(dict.fromkeys(reduction for names in found for reduction in names))

    def reduction(self, reduction: str, mode: Mode | None = None, rank: int = 0) -> Column:
        """Return one statistic along the steps; of all modes unless one is named.

        It is empty where the statistic was captured, but not of this mode and rank.

        Raises:
            UnknownTensor: this statistic was never captured of it.
        """
        if reduction not in self.reductions:
            known = f"; captured: {', '.join(self.reductions)}" if self.reductions else ""
            raise UnknownTensor(
                f"{self.name}: no {reduction} was captured"
                + (did_you_mean(reduction, self.reductions) or known)
            )
        history = self._histories.get(rank)
        if history is not None:
            columns = read_columns(
                history, self._problems, self._is_it, reduction=reduction, mode=mode
            )
            if self.name in columns:
                return columns[self.name]
        return Column.empty(self.name)

    def _is_it(self, name: str) -> bool:
        return name == self.name

    def _last_layout(self) -> TensorLayout:
        for history in self._histories.values():
            for segment in reversed(history.segments):
                groups = list(segment.groups_of(self.name))
                if groups:
                    return max(groups, key=_last_row).layout
        raise UnknownStep(f"{self.name}: only its statistics were captured, never the tensor")

    def _hint(self, step: int, mode: Mode, rank: int) -> str:
        """Return what to ask for instead."""
        steps = self.steps(mode, rank)
        if len(steps):
            nearest = np.sort(steps[np.argsort(np.abs(steps - step), kind="stable")[:3]])
            return f"; the nearest steps are {', '.join(map(str, nearest))}"
        elsewhere = [other for other in MODES if len(self.steps(other, rank))]
        return f"; it was in mode {', '.join(elsewhere)}" if elsewhere else ""


def _last_row(group: TensorGroup) -> float:
    """Return the last row of a group; one that has all of them goes before every other."""
    return float("inf") if group.rows is None else float(group.rows[-1])
