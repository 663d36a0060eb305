"""Reading a run, while it is written or years later."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import CorruptData, NotARun, UnknownTensor, did_you_mean
from vinedresser.store.finding import Finding
from vinedresser.store.index.layout import LayoutPool
from vinedresser.store.problems import Problems
from vinedresser.store.reading.column_reading import read_columns
from vinedresser.store.reading.following import Urgency, follow
from vinedresser.store.reading.history import History
from vinedresser.store.reading.selection import Selector
from vinedresser.store.reading.series import Columns, frame_of
from vinedresser.store.reading.step import SegmentColumns, Step
from vinedresser.store.reading.tensor_view import TensorView
from vinedresser.store.records import RunRecord, read_record
from vinedresser.store.reductions import base_name, derived_name
from vinedresser.store.status import Status, run_status
from vinedresser.store.step_record import MODES, Mode
from vinedresser.store.storage import Storage, open_storage

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Run", "open_run"]


def open_run(location: str | os.PathLike[str] | Storage) -> Run:
    """Open a run for reading, whether it is over or still being written.

    Args:
        location: its directory, or a storage.

    Raises:
        NotARun: nothing there says that it is a run; the message says what is missing.
        CorruptData: run.json is not readable.
        StoreError: the storage refused.
    """
    return Run(open_storage(location) if isinstance(location, str | os.PathLike) else location)


class Run:
    """A run, opened by `open_run`: as it was when first looked into, or at the last `refresh`.

    It is for one thread; open the run once more for another.

    Attributes:
        storage: where it lies.
        info: what the run is (`run.json`).

    Args:
        storage: the run's.

    Raises:
        NotARun: there is no run.json.
        CorruptData: run.json is not readable.
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
        return f"Run({self.path!r})"

    @property
    def path(self) -> str:
        """Where it lies, as a user would write it."""
        return self.storage.location

    @property
    def ranks(self) -> tuple[int, ...]:
        """The processes that have committed something, ascending."""
        return tuple(rank for rank, history in self._histories.items() if history.segments)

    @property
    def problems(self) -> list[str]:
        """What is wrong with it, one sentence each: damaged or missing index records or columns.

        Everything else stays readable.
        """
        return list(self._problems.sentences)

    @property
    def status(self) -> Status:
        """How it stands, looked up now."""
        return run_status(self.storage)

    @property
    def finished(self) -> bool:
        """Whether nothing more will come, however it ended; looked up now."""
        return self.status.over

    def refresh(self) -> int:
        """Take in what was committed since; return how many records (steps) are new to it."""
        if not any(history.records for history in self._histories.values()):
            # The hook completes run.json before the first commit.
            self._read_info()
        return sum(history.refresh() for history in self._histories.values())

    def _read_info(self) -> None:
        info = read_record(self.storage, RunRecord)
        if info is None:
            raise NotARun(f"{self.path}: not a run: there is no {RunRecord.KEY}")
        self.info = info
        self._selector = Selector(info.capture)
        for rank in range(info.world_size):
            if rank not in self._histories:
                history = History(self.storage, rank, self._pool, self._problems)
                self._histories[rank] = history

    def steps(self, mode: Mode | None = "train", rank: int = 0) -> NDArray[np.int64]:
        """Return the committed steps of a mode (None: of all), ascending, each once; int64, [N]."""
        history = self._histories.get(rank)
        if history is None:
            return np.empty(0, np.int64)
        return history.steps_of(np.arange(len(history.rows.steps)), mode)

    def tensor_names(self, regex: str | None = None, collection: str | None = None) -> list[str]:
        """Return the tensors captured in full or as statistics, each once.

        A statistic that is stored as a tensor of its own, such as a histogram, is none of them.

        Those of one type that were captured together come in the order in which the hook saw them.

        Args:
            regex: only names in which it is found (`re.search`).
            collection: only members of this collection: built-in (by the name's first part), or
                one that the run's capture configuration defines.

        Raises:
            ConfigError: an invalid regex, or a collection that the run does not know.
        """
        test = self._selector.test(regex, collection)
        histories = self._histories.values()
        names = _names(layout.names for history in histories for layout in history.layouts())
        whole = dict.fromkeys(base_name(name) or name for name in names)
        return [name for name in whole if test(name)]

    def scalar_names(self, regex: str | None = None, collection: str | None = None) -> list[str]:
        """Return the names of the scalars; see `tensor_names`.

        Raises:
            ConfigError: an invalid regex, or a collection that the run does not know.
        """
        test = self._selector.test(regex, collection)
        layouts = [one for each in self._histories.values() for one in each.column_layouts]
        names = _names(layout.names for layout in layouts if layout.reductions is None)
        return [name for name in names if test(name)]

    def vector_names(self, reduction: str, collection: str | None = None) -> list[str]:
        """Return the tensors of which a statistic of several numbers was captured, each once.

        Args:
            reduction: such as "histogram".
            collection: only members of this collection.

        Raises:
            ConfigError: a collection that the run does not know.
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
        """Return what was committed at a step: no, one or several records, as captured.

        Args:
            step: the optimizer step.
            mode: in which mode.
            rank: whose.
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

    def tensor(self, name: str) -> TensorView:
        """Return one tensor along the steps.

        Raises:
            UnknownTensor: there is none of that name; the message has the nearest names.
        """
        if not any(history.has_tensor(name) for history in self._histories.values()):
            names = self.tensor_names()
            if name not in names:
                raise UnknownTensor(f"{self.path}: no tensor {name}{did_you_mean(name, names)}")
        return TensorView(name, self._histories, self._problems)

    def scalars(
        self, select: str | None = None, *, mode: Mode | None = None, rank: int = 0
    ) -> Columns:
        """Return scalars along the steps; no tensor is touched. Empty columns are left out.

        Args:
            select: a collection such as "losses", or else a regex (`re.search`); None: all.
            mode: only this mode; None: all modes, told apart by `Column.modes`.
            rank: whose.

        Raises:
            ConfigError: an invalid regex.
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
        """Return one statistic of many tensors along the steps; no tensor is touched.

        Args:
            reduction: such as "l2".
            select: a collection such as "gradients", or else a regex; None: all.
            mode: only this mode; None: all modes.
            rank: whose.

        Raises:
            ConfigError: an invalid regex.
        """
        return self._columns(select, reduction, mode, rank)

    def to_pandas(
        self, select: str | None = None, *, mode: Mode | None = None, rank: int = 0
    ) -> pd.DataFrame:
        """Return scalars and statistics in one long frame; no tensor is touched.

        Args:
            select: a collection such as "gradients", or else a regex; None: all.
            mode: only this mode; None: all modes.
            rank: whose.

        Returns:
            One row a value, with the columns name, reduction ("" for a scalar), mode, step, time,
            value.

        Raises:
            ConfigError: an invalid regex.
            MissingDependency: pandas is not installed.
        """
        history = self._histories.get(rank)
        layouts = [] if history is None else history.column_layouts
        words = dict.fromkeys(word for one in layouts for word in one.reductions or ())
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

    def findings(self) -> list[Finding]:
        """Return what the rules have found so far, sorted by step, rule and tensor.

        Raises:
            CorruptData: a line of a findings file is not a finding.
        """
        found: list[Finding] = []
        for key in self.storage.list("findings/"):
            if not key.endswith(".jsonl"):
                continue
            for number, line in enumerate(self.storage.get(key).splitlines(), start=1):
                try:
                    found.append(Finding.from_json(json.loads(line)))
                except (ValueError, TypeError, RecursionError) as error:
                    raise CorruptData(
                        f"{self.path}/{key}: line {number} is not a finding: {error}"
                    ) from error
        return sorted(found, key=lambda finding: (finding.step, finding.rule, finding.tensor))

    def follow(
        self,
        poll: float | None = None,
        *,
        urgent: bool = False,
        on_idle: Callable[[], None] | None = None,
    ) -> Iterator[Step]:
        """Yield every committed step from the first, waiting for new ones until the run is over.

        The order is the same while the run is written and afterwards: within a rank as captured;
        across ranks by (step, ordinal, rank). It ends when nothing more will come, also when the
        writer died. It reads by itself: what it has passed is forgotten, and `refresh` is not
        called.

        Args:
            poll: seconds between two looks when there is nothing new. None: 0.02 for a run in a
                directory; for one on S3 0.25, doubling up to 2 while nothing comes, and where it
                is urgent 0.05, doubling up to 0.25.
            urgent: ask the writer to commit every step at once as long as this generator runs.
            on_idle: called after each look that found nothing new.

        Raises:
            StoreError: the storage refused.
        """
        urgency = Urgency(self.storage) if urgent else None
        return follow(self.storage, self._problems, poll=poll, urgency=urgency, on_idle=on_idle)


def _names(groups: Iterable[tuple[str, ...]]) -> dict[str, None]:
    """Return the names of several groups, each once (a dict for its order)."""
    return {name: None for names in groups for name in names}
