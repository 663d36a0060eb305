"""Reading a run, while it is written or later."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import NotARun, UnknownTensor, did_you_mean
from vinedresser.objects import Storage, open_storage
from vinedresser.store.index.layout import LayoutPool
from vinedresser.store.problems import Problems
from vinedresser.store.reading.findings import Findings, read_findings
from vinedresser.store.reading.following import Urgency, follow
from vinedresser.store.reading.history import History
from vinedresser.store.reading.notebook_html import paragraph
from vinedresser.store.reading.rank_reading import read_columns
from vinedresser.store.reading.selection import Selector
from vinedresser.store.reading.series import Columns, frame_of
from vinedresser.store.reading.step import SegmentColumns, Step
from vinedresser.store.reading.store_runs import run_record
from vinedresser.store.reading.system import system_columns
from vinedresser.store.reading.tensor_view import TensorView
from vinedresser.store.records import (
    ControlRecord,
    RunRecord,
    SystemRecord,
    read_journal,
    strays,
)
from vinedresser.store.reductions import base_name, derived_name
from vinedresser.store.segments.segment import Segment
from vinedresser.store.status import Status, run_status
from vinedresser.store.step_record import MODES, Mode

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run", "open_run"]


def open_run(location: str | os.PathLike[str] | Storage) -> Run:
    """Open a run for reading, finished or still being written.

    Args:
        location: the run's directory, ``s3://`` URL or storage.

    Raises:
        NotARun: there is no run.json.
        CorruptData: run.json is invalid.
        StoreError: the storage refused.
    """
    if isinstance(location, str | os.PathLike):
        # A reader that waits asks the writer for urgency: it must not create a removed run again.
        return Run(open_storage(location, anchor=RunRecord.KEY))
    return Run(location)


class Run:
    """A run, opened by `open_run`: its state at the first access or the last `refresh`.

    Not thread-safe; open the run again in another thread.

    Attributes:
        info: the run's own record (`run.json`).

    Raises:
        NotARun: there is no run.json.
        CorruptData: run.json is invalid.
        StoreError: the storage refused.
    """

    storage: Storage
    info: RunRecord

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._problems = Problems()
        self._pool = LayoutPool()
        self._histories: dict[int, History] = {}
        self._read_info()

    def __repr__(self) -> str:
        steps = len(self.steps())
        return f"Run({self.path!r}, {self._state()}, {steps:,} step{'' if steps == 1 else 's'})"

    def _repr_html_(self) -> str:
        """Return its state and its findings; `vinedresser.verdict` tells them apart."""
        return paragraph(f"{self.info.name}: {self._state()}") + self.findings()._repr_html_()

    def _state(self) -> str:
        try:
            return self.status.words
        except NotARun:
            return "removed"

    @property
    def path(self) -> str:
        """The run's directory or URL, as given by the user."""
        return self.storage.location

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have committed data, ascending."""
        return tuple(rank for rank, history in self._histories.items() if history.segments)

    @property
    def problems(self) -> list[str]:
        """Corrupt or missing index records, columns and findings, one sentence each.

        Everything else stays readable.
        """
        return list(self._problems.sentences)

    @property
    def status(self) -> Status:
        """The current status, read from the storage."""
        return run_status(self.storage)

    @property
    def finished(self) -> bool:
        """Whether the run has ended, for any reason; read from the storage."""
        return self.status.over

    def refresh(self) -> int:
        """Load newly committed data; return the number of new records (steps)."""
        if not any(history.records for history in self._histories.values()):
            # The hook completes run.json before the first commit.
            self._read_info()
        return sum(history.refresh() for history in self._histories.values())

    def _read_info(self) -> None:
        self.info = info = run_record(self.storage)
        self._selector = Selector(info.capture)
        for rank in range(info.world_size):
            if rank not in self._histories:
                history = History(self.storage, rank, self._pool, self._problems)
                self._histories[rank] = history

    def steps(self, mode: Mode | None = "train", rank: int = 0) -> NDArray[np.int64]:
        """Return the distinct committed steps of a mode; int64 [steps], ascending.

        Args:
            mode: only this mode; None: all modes.
        """
        history = self._histories.get(rank)
        if history is None:
            return np.empty(0, np.int64)
        return history.steps_of(np.arange(len(history.rows.steps)), mode)

    def tensor_names(self, regex: str | None = None, collection: str | None = None) -> list[str]:
        """Return the distinct names of tensors captured in full or as statistics.

        Vector statistics such as histograms, which are stored as tensors, are not included.
        Tensors of the same dtype that were captured together are in capture order.

        Args:
            regex: only names that match (`re.search`).
            collection: only members of this collection, either built-in or defined in the run's
                capture configuration.

        Raises:
            ConfigError: the regex is invalid, or the run has no such collection.
        """
        test = self._selector.test(regex, collection)
        histories = self._histories.values()
        names = _names(layout.names for history in histories for layout in history.layouts())
        whole = dict.fromkeys(base_name(name) or name for name in names)
        return [name for name in whole if test(name)]

    def scalar_names(self, regex: str | None = None, collection: str | None = None) -> list[str]:
        """Return the names of the scalars; see `tensor_names`.

        Raises:
            ConfigError: the regex is invalid, or the run has no such collection.
        """
        test = self._selector.test(regex, collection)
        layouts = [
            column_layout
            for each in self._histories.values()
            for column_layout in each.column_layouts
        ]
        names = _names(layout.names for layout in layouts if layout.reductions is None)
        return [name for name in names if test(name)]

    def vector_names(self, reduction: str, collection: str | None = None) -> list[str]:
        """Return the names of the tensors with a vector statistic.

        Args:
            reduction: vector reduction, such as "histogram".
            collection: only members of this collection.

        Raises:
            ConfigError: the run has no such collection.
        """
        test = self._selector.test(None, collection)
        histories = self._histories.values()
        names = _names(layout.names for history in histories for layout in history.layouts())
        pairs = ((base_name(name), name) for name in names)
        return [
            base
            for base, name in pairs
            if base and name == derived_name(base, reduction) and test(base)
        ]

    def at(self, step: int, mode: Mode = "train", rank: int = 0) -> list[Step]:
        """Return the records committed at a step, in capture order: none, one or several.

        Args:
            step: the optimizer step.
        """
        history = self._histories.get(rank)
        if history is None:
            return []
        modes, steps, _ = history.rows
        found = []
        for ordinal in np.flatnonzero((steps == step) & (modes == MODES.index(mode))).tolist():
            numbers = range(len(history.segments))
            number = bisect_right(numbers, ordinal, key=history.first) - 1
            first = history.first(number)
            columns = SegmentColumns(history.segments[number], first, self._selector)
            found.append(Step(columns, ordinal - first))
        return found

    def segments(self, rank: int = 0) -> list[Segment]:
        """Return the committed segments of a rank, in the order of their numbers."""
        history = self._histories.get(rank)
        return [] if history is None else list(history.segments)

    @property
    def problem_log(self) -> Problems:
        """Receives what readers of its segments find damaged; see `problems`."""
        return self._problems

    def tensor(self, name: str) -> TensorView:
        """Return a view of one tensor over the steps.

        Raises:
            UnknownTensor: no such tensor; the message suggests similar names.
        """
        if not any(history.has_tensor(name) for history in self._histories.values()):
            names = self.tensor_names()
            if name not in names:
                raise UnknownTensor(f"{self.path}: no tensor {name}{did_you_mean(name, names)}")
        return TensorView(name, self._histories, self._problems)

    def scalars(
        self, select: str | None = None, *, mode: Mode | None = None, rank: int = 0
    ) -> Columns:
        """Return scalars over the steps, without reading tensors. Empty columns are omitted.

        Args:
            select: a collection such as "losses", or a regex (`re.search`); None: all.
            mode: only this mode; None: all modes (see `Column.modes`).

        Raises:
            ConfigError: the regex is invalid.
        """
        return self._columns(select, None, mode, rank)

    def reductions(
        self,
        reduction: str,
        select: str | None = None,
        *,
        mode: Mode | None = None,
        rank: int = 0,
    ) -> Columns:
        """Return a scalar statistic of many tensors over the steps, without reading tensors.

        Args:
            reduction: scalar reduction, such as "l2".
            select: a collection such as "gradients", or a regex; None: all.
            mode: only this mode; None: all modes.

        Raises:
            ConfigError: the regex is invalid.
        """
        return self._columns(select, reduction, mode, rank)

    def to_pandas(
        self, select: str | None = None, *, mode: Mode | None = None, rank: int = 0
    ) -> pd.DataFrame:
        """Return scalars and scalar statistics in one long frame, without reading tensors.

        Args:
            select: a collection such as "gradients", or a regex; None: all.
            mode: only this mode; None: all modes.

        Returns:
            One row per value, with the columns name, reduction ("" for a scalar), mode, step, time
            and value.

        Raises:
            ConfigError: the regex is invalid.
            MissingDependency: pandas is not installed.
        """
        history = self._histories.get(rank)
        layouts = [] if history is None else history.column_layouts
        words = dict.fromkeys(word for layout in layouts for word in layout.reductions or ())
        parts = {word: self._columns(select, word, mode, rank) for word in (None, *words)}
        return frame_of({word or "": columns for word, columns in parts.items()})

    def _columns(
        self, select: str | None, reduction: str | None, mode: Mode | None, rank: int
    ) -> Columns:
        test = self._selector.either(select)
        history = self._histories.get(rank)
        if history is None:
            return Columns([])
        return read_columns(history, self._problems, test, reduction=reduction, mode=mode)

    def findings(self, faults: list[str] | None = None) -> Findings:
        """Return the findings of the rules so far, sorted by step, rule and tensor.

        Damaged lines and files are left out and added to the problems.

        Args:
            faults: also receives a sentence for each damaged file.

        Raises:
            StoreError: the storage refused.
        """
        damaged: list[str] = [] if faults is None else faults
        found = read_findings(self.storage, damaged)
        for fault in damaged:
            self._problems.note(fault)
        return found

    def controls(self) -> list[ControlRecord]:
        """Return what was changed in the training from outside, in order.

        Raises:
            StoreError: the storage refused.
        """
        damaged: list[str] = []
        found = read_journal(self.storage, ControlRecord, damaged)
        for fault in damaged:
            self._problems.note(fault)
        return found

    def system(self) -> Columns:
        """Return the load of its machine, such as ``system/cpu_utilization_percentage``.

        The columns have MLflow's names of system metrics, and the step that was last completed at
        each time. They are empty for runs that were not launched.

        Raises:
            StoreError: the storage refused.
        """
        damaged: list[str] = []
        found = system_columns(read_journal(self.storage, SystemRecord, damaged))
        for fault in damaged:
            self._problems.note(fault)
        return found

    def damage(self, status: Status) -> list[str]:
        """Return a sentence for everything in the run that is damaged, missing or out of place.

        Values and findings that were not read are not checked: call this last.

        Raises:
            StoreError: the storage refused.
        """
        return list(dict.fromkeys((*status.problems, *self.problems, *strays(self.storage))))

    def follow(
        self,
        poll: float | None = None,
        *,
        urgent: bool = False,
        on_idle: Callable[[], None] | None = None,
    ) -> Iterator[Step]:
        """Yield every committed step from the first, waiting for new ones until the run ends.

        The order is the same while the run is written and afterwards: capture order within a rank;
        by (step, ordinal, rank) across ranks. The generator also ends when the writer has died. It
        keeps its own position and releases the steps it has yielded; it does not `refresh` the run.

        Args:
            poll: seconds between polls while nothing is new. None: 0.02 for a run in a directory;
                for a run on S3 0.25, doubling up to 2, and if urgent 0.05, doubling up to 0.25.
            urgent: ask the writer to commit every step immediately while this generator runs.
            on_idle: called after each poll that found nothing new.

        Raises:
            StoreError: the storage refused.
        """
        urgency = Urgency(self.storage) if urgent else None
        return follow(self.storage, self._problems, poll=poll, urgency=urgency, on_idle=on_idle)


def _names(groups: Iterable[tuple[str, ...]]) -> dict[str, None]:
    """Return the distinct names of several groups (a dict for its order)."""
    return {name: None for names in groups for name in names}
