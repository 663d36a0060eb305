"""One tensor of a run over its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData, UnknownStep, UnknownTensor, did_you_mean
from vinedresser.plain_text import visible
from vinedresser.store.dtypes import numpy_dtype
from vinedresser.store.problems import Problems
from vinedresser.store.reading.history import History
from vinedresser.store.reading.notebook_html import blocks, paragraph, preformatted, table
from vinedresser.store.reading.rank_reading import read_columns, read_tensor
from vinedresser.store.reading.series import Column
from vinedresser.store.reductions import Histogram, base_name, derived_name, reduce_array
from vinedresser.store.reductions.computing import compute_statistics
from vinedresser.store.segments.segment import TensorRows
from vinedresser.store.step_record import MODES, Mode


class TensorView:
    """One tensor's values and statistics, read on demand; created by `Run.tensor`.

    Args:
        histories: histories of the run's ranks.
        problems: collects corrupt data.

    Attributes:
        name: name of the tensor, such as "gradients/conv1.weight".
    """

    def __init__(self, name: str, histories: Mapping[int, History], problems: Problems) -> None:
        self.name = name
        self._histories = histories
        self._problems = problems

    def __repr__(self) -> str:
        known = ", ".join(filter(None, [self._kind(), *self.reductions, *self.vector_reductions]))
        return f"TensorView({visible(self.name)}{': ' if known else ''}{known})"

    def _repr_html_(self) -> str:
        """Return its last statistics, and the histogram of its last value."""
        lines = [paragraph(repr(self))]
        rows = []
        for word in self.reductions:
            column = self.reduction(word)
            if len(column):
                rows.append((word, len(column), column.steps[-1], f"{column.values[-1]:.6g}"))
        if rows:
            lines.append(table(("statistic", "values", "last step", "last value"), rows))
        for mode in MODES:
            steps = self.steps(mode)
            if len(steps):
                lines.append(self._last_histogram(int(steps[-1]), mode))
                break
        return "".join(lines)

    def _last_histogram(self, step: int, mode: Mode) -> str:
        """Return the histogram of the tensor at a step as HTML; damage is named in its place."""
        try:
            value = self.value(step, mode)
        except CorruptData as error:
            return paragraph(str(error))
        statistics = compute_statistics(value, frozenset({"histogram"}), None)
        statistics.settle()
        counts, edges = Histogram.unpacked(statistics.vectors["histogram"])
        bars = f"{edges[0]:.4g} {blocks(counts)} {edges[-1]:.4g}"
        return preformatted(f"{mode} step {step:,}: {bars}")

    def _kind(self) -> str:
        """Return dtype, shape and number of steps; "" if it was never captured in full."""
        try:
            shape, dtype = self.shape, self.dtype
        except UnknownStep:
            return ""
        steps = len(self.steps(None))
        return f"{dtype} {list(shape)}, {steps:,} step{'' if steps == 1 else 's'}"

    def steps(
        self, mode: Mode | None = "train", rank: int = 0, *, reduction: str | None = None
    ) -> NDArray[np.int64]:
        """Return the distinct steps at which it was captured; int64 [steps], ascending.

        Args:
            mode: only this mode; None: all modes.
            reduction: one of `vector_reductions`; None: the full tensor.

        Raises:
            UnknownTensor: this statistic was never captured for the tensor.
        """
        if reduction is not None:
            return self._derived(reduction).steps(mode, rank)
        history = self._histories.get(rank)
        if history is None:
            return np.empty(0, np.int64)
        found = [
            history.first(number) + block.rows
            for number, segment in enumerate(history.segments)
            for block in segment.tensor_rows(self.name)
        ]
        ordinals = np.concatenate([np.empty(0, np.int64), *found])
        return history.steps_of(ordinals, mode)

    def value(self, step: int, mode: Mode = "train", rank: int = 0) -> NDArray[Any]:
        """Return the tensor at a step: read-only, of its captured shape and dtype.

        bfloat16 and float8 are dtypes of `ml_dtypes`. If several records have this mode and step,
        the last one with the tensor counts.

        Raises:
            UnknownStep: it was not captured in full there; the message names the nearest steps.
            CorruptData: the stored bytes do not match their checksum; the message names the file.
        """
        history = self._histories.get(rank)
        found = history and history.find(self.name, step, mode)
        if found:
            segment, entry = found
            return segment.tensor(self.name, entry)
        raise UnknownStep(
            f"{self.name}: not captured in full at {mode} step {step} of rank {rank}"
            + self._hint(step, mode, rank)
        )

    def values(
        self, mode: Mode | None = "train", rank: int = 0
    ) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the tensor at every step at which it was captured in full, in capture order.

        Many steps are read at a time, and none is kept. Two evaluations between the same two
        optimizer steps have the same step number; both are yielded. Corrupt data is skipped and
        added to `Run.problems`.

        Args:
            mode: only this mode; None: all modes.

        Yields:
            The step, and the tensor as returned by `value`.
        """
        history = self._histories.get(rank)
        if history is None:
            return
        steps = history.rows.steps
        for ordinal, value in read_tensor(history, self._problems, self.name, mode):
            yield int(steps[ordinal]), value

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor when it was last captured in full.

        Raises:
            UnknownStep: only its statistics were captured.
        """
        group, which, _ = self._last_block()
        return group.layout.shapes[which]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the tensor when it was last captured in full.

        Raises:
            UnknownStep: only its statistics were captured.
        """
        return numpy_dtype(self._last_block().group.layout.dtype)

    @property
    def reductions(self) -> tuple[str, ...]:
        """Names of its scalar statistics captured at any step."""
        found = (
            layout.reductions or ()
            for history in self._histories.values()
            for layout in history.column_layouts
            if self.name in layout.places
        )
        return tuple(dict.fromkeys(reduction for names in found for reduction in names))

    def reduction(self, reduction: str, mode: Mode | None = None, rank: int = 0) -> Column:
        """Return a scalar statistic over the steps.

        The column is empty if the statistic was captured, but not in this mode and rank.

        Args:
            reduction: one of `reductions`.
            mode: only this mode; None: all modes.

        Raises:
            UnknownTensor: this statistic was never captured for the tensor, or is a vector.
        """
        if reduction in self.vector_reductions:
            raise UnknownTensor(f"{self.name}: {reduction} is not a number{_reading(reduction)}")
        if reduction not in self.reductions:
            known = f"; captured: {', '.join(self.reductions)}" if self.reductions else ""
            raise UnknownTensor(
                f"{self.name}: no {reduction} was captured"
                + (did_you_mean(reduction, self.reductions) or known)
            )
        history = self._histories.get(rank)
        if history is not None:
            columns = read_columns(
                history,
                self._problems,
                lambda one: one == self.name,
                reduction=reduction,
                mode=mode,
            )
            if self.name in columns:
                return columns[self.name]
        return Column.empty(self.name)

    @property
    def vector_reductions(self) -> tuple[str, ...]:
        """Names of its vector statistics captured at any step."""
        names = (
            name
            for history in self._histories.values()
            for layout in history.layouts()
            for name in layout.names
            if base_name(name) == self.name
        )
        return tuple(dict.fromkeys(name.rpartition("|")[2] for name in names))

    def histogram(
        self, step: int, mode: Mode = "train", rank: int = 0, *, absolute: bool = False
    ) -> Histogram:
        """Return the distribution of its elements at a step: counts and bin edges.

        Args:
            step: a step at which it was captured; see `steps`.
            absolute: return the distribution of the magnitudes ("abs_histogram").

        Raises:
            UnknownTensor: no such histogram was ever captured for the tensor.
            UnknownStep: it was not captured there; the message names the nearest steps.
            CorruptData: the stored bytes do not match their checksum; the message names the file.
        """
        word = "abs_histogram" if absolute else "histogram"
        return Histogram.unpacked(self._derived(word).value(step, mode, rank))

    def channels(
        self, statistic: str, step: int, mode: Mode = "train", rank: int = 0
    ) -> NDArray[np.float64]:
        """Return a statistic of each of its channels at a step; float64 [channels].

        Args:
            statistic: the statistic without prefix: "l2" for "channel_l2". For "histogram", the
                result is float64 [channels, 2 + 64]: see `Histogram.unpacked`.
            step: a step at which it was captured; see `steps`.

        Raises:
            UnknownTensor: this statistic was never captured for the tensor.
            UnknownStep: it was not captured there; the message names the nearest steps.
            CorruptData: the stored bytes do not match their checksum; the message names the file.
        """
        return self._derived(f"channel_{statistic}").value(step, mode, rank)

    def computed(self, reduction: str, mode: Mode | None = None, rank: int = 0) -> Column:
        """Compute a scalar statistic over the steps from the full tensors, reading all of them.

        The result equals the reduction captured during training, up to rounding. Corrupt data is
        skipped and added to `Run.problems`.

        Args:
            reduction: scalar reduction, such as "l2" or "abs_p99".
            mode: only this mode; None: all modes.

        Raises:
            ConfigError: no such reduction, or it is not a scalar.
        """
        history = self._histories.get(rank)
        if history is None:
            return Column.empty(self.name)
        modes, steps, times = history.rows
        found = [
            (ordinal, reduce_array(value, [reduction])[reduction])
            for ordinal, value in read_tensor(history, self._problems, self.name, mode)
        ]
        where = np.array([ordinal for ordinal, _ in found], np.int64)
        values = np.array([value for _, value in found], np.float64)
        return Column(self.name, steps[where], values, times[where], modes[where])

    def _derived(self, reduction: str) -> TensorView:
        """Return a view of the tensor that stores a vector statistic."""
        name = derived_name(self.name, reduction)
        if not any(history.has_tensor(name) for history in self._histories.values()):
            words = self.vector_reductions
            known = f"; captured: {', '.join(words)}" if words else ""
            raise UnknownTensor(
                f"{self.name}: no {reduction} was captured{did_you_mean(reduction, words) or known}"
            )
        return TensorView(name, self._histories, self._problems)

    def _last_block(self) -> TensorRows:
        for history in self._histories.values():
            for segment in reversed(history.segments):
                blocks = list(segment.tensor_rows(self.name))
                if blocks:
                    return max(blocks, key=lambda block: block.rows[-1])
        raise UnknownStep(f"{self.name}: only its statistics were captured, never the tensor")

    def _hint(self, step: int, mode: Mode, rank: int) -> str:
        """Return a suggestion for the message: the nearest steps or other modes."""
        steps = self.steps(mode, rank)
        if len(steps):
            nearest = np.sort(steps[np.argsort(np.abs(steps - step), kind="stable")[:3]])
            return f"; the nearest steps are {', '.join(map(str, nearest))}"
        elsewhere = [other for other in MODES if len(self.steps(other, rank))]
        return f"; it was in mode {', '.join(elsewhere)}" if elsewhere else ""


def _reading(reduction: str) -> str:
    """Return how a vector statistic is read, for a message; "" for those of rules."""
    calls = {
        "histogram": "histogram(step=...)",
        "abs_histogram": "histogram(step=..., absolute=True)",
    }
    if reduction.startswith("channel_"):
        calls[reduction] = f'channels("{reduction.removeprefix("channel_")}", step=...)'
    return f"; read it with .{calls[reduction]}" if reduction in calls else ""
