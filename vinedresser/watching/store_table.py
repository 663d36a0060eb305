"""The runs of a store as rows that are read once, and again when they change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from vinedresser.errors import CorruptData, NotARun, StoreError, UnknownRun, VinedresserError
from vinedresser.explain.comparison.compared_run import named_scalars
from vinedresser.explain.comparison.ranking import choose_goal
from vinedresser.explain.watching.table_row import Row, damaged_row, run_row
from vinedresser.plain_text import visible
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.run_store import RunStore
from vinedresser.store.reading.series import Column
from vinedresser.watching.background import Background

__all__ = ["ListedRun", "StoreTable"]

_EPOCHS = "^(metrics|saved)/epoch$"
# Bytes of curves that are kept in memory.
_MOST_BYTES = 256 * 2**20


class ListedRun:
    """A run of the table; may be used by several threads.

    Args:
        name: its name there.

    Attributes:
        name: its name in the store.
        revision: revision of the table with its last change.
        row: its row; None until it is read.
    """

    def __init__(self, store: RunStore, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.revision = 0
        self.row: Row | None = None
        self._store = store
        self._run: Run | None = None
        self._key: Hashable = None
        self._scalars: dict[str, Column] | None = None
        self._epochs: Column | None = None
        # Runs are not thread-safe.
        self._lock = threading.Lock()

    def renew(self) -> bool:
        """Read the run if its records, status or findings have changed; return whether they have.

        Raises:
            StoreError: the object store refused.
        """
        with self._lock:
            try:
                if self._run is None:
                    # Index records are read when they are first used.
                    self._run = self._store[self.name]
                else:
                    self._run.refresh()
                run = self._run
                records = [len(run.steps(None, rank)) for rank in run.ranks]
                key: Hashable = (tuple(records), run.status, repr(run.findings()))
                if self.row is not None and key == self._key:
                    return False
                self.row, self._key, self._scalars = run_row(self.name, run), key, None
            except (CorruptData, NotARun, UnknownRun, StoreError) as error:
                # Damaged, removed meanwhile, or a directory of another user, which hides no other
                # run; an object store that refuses is not asked for each of them.
                if isinstance(error, StoreError) and not isinstance(self._store.location, Path):
                    raise
                before, self.row = self.row, damaged_row(self.name, str(error))
                self._run, self._key, self._scalars = None, None, None
                return before != self.row
        return True

    def scalars(self) -> dict[str, Column]:
        """Return its losses and metrics, as of its row, by their names in MLflow.

        Raises:
            StoreError: the storage refused.
        """
        with self._lock:
            return self._read()

    def epochs(self) -> Column | None:
        """Return the numbers of its epochs; None if the training did not save any.

        Raises:
            StoreError: the storage refused.
        """
        with self._lock:
            self._read()
            return self._epochs

    def _read(self) -> dict[str, Column]:
        if self._scalars is None:
            scalars: dict[str, Column] = {}
            epochs: list[Column] = []
            if self._run is not None:
                # Removed or damaged since its row was read, it has none; the next row says so.
                with suppress(CorruptData, NotARun):
                    named = named_scalars(self._run)
                    scalars = {visible(name): column for name, column in named.items()}
                    epochs = [*self._run.scalars(_EPOCHS, mode="train").values()]
            self._scalars, self._epochs = scalars, next(iter(epochs), None)
        return self._scalars

    def forget(self) -> None:
        """Free the memory of its curves; they are read again when they are asked for."""
        with self._lock:
            self._scalars = self._epochs = None

    @property
    def size(self) -> int:
        """Bytes of its curves in memory."""
        columns = (self._scalars or {}).values()
        return sum(len(column) * 4 * np.dtype(np.float64).itemsize for column in columns)


class StoreTable:
    """The runs of a store; may be used by several threads."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._runs: dict[str, ListedRun] = {}
        self._numbered: dict[int, ListedRun] = {}
        self._removed: dict[int, int] = {}
        self._drawn: OrderedDict[int, ListedRun] = OrderedDict()
        self._revision = 0
        self._listed = 0
        self._problem = ""
        self._complete = False
        self._background = Background(self._renew)

    def changes(self, since: int) -> dict[str, Any]:
        """Return the rows that have changed, as plain JSON, within half a second.

        Args:
            since: a revision that was returned before; 0: all rows.

        Returns:
            ``revision``, ``rows`` (each with its number, ``id``), ``removed`` (numbers),
            ``listed`` (number of runs in the store), ``reading`` (rows are being read: ask again
            at once), ``complete`` (all rows were read once), ``problem`` ("" or why the store
            cannot be read), ``location`` and ``goal`` (name and direction of the metric by which
            runs are ranked; None).
        """
        self._background.ask()
        with self._lock:
            runs = [run for run in self._numbered.values() if run.row is not None]
            goal = choose_goal([run.row for run in runs if run.row is not None])
            return {
                "revision": self._revision,
                "listed": self._listed,
                "reading": self._background.busy,
                "complete": self._complete,
                "location": visible(str(self._store.location)),
                "problem": self._problem,
                "goal": goal and goal._asdict(),
                "removed": [number for number, at in self._removed.items() if at > since],
                "rows": [
                    {"id": run.number, **run.row.to_json()}
                    for run in runs
                    if run.row is not None and run.revision > since
                ],
            }

    def runs(self, numbers: Iterable[int]) -> list[ListedRun]:
        """Return the runs of these numbers that are still in the store.

        Args:
            numbers: numbers from a request: nothing else of a request leads to files.
        """
        with self._lock:
            return [self._numbered[number] for number in numbers if number in self._numbered]

    def keep(self, drawn: Sequence[ListedRun]) -> None:
        """Keep the curves of runs in memory, and forget others as long as there are too many.

        Args:
            drawn: the runs whose curves were asked for last.
        """
        spare = []
        with self._lock:
            for run in drawn:
                self._drawn[run.number] = run
                self._drawn.move_to_end(run.number)
            sizes = {number: run.size for number, run in self._drawn.items()}
            total = sum(sizes.values())
            for number in [*self._drawn]:
                if total <= _MOST_BYTES:
                    break
                total -= sizes[number]
                spare.append(self._drawn.pop(number))
        for run in spare:
            run.forget()

    def _renew(self) -> None:
        problem = "the table cannot be read; the terminal of vinedresser watch says why"
        try:
            self._store.refresh()
            self._list([*self._store])
            for run in [*self._runs.values()]:
                if run.renew():
                    with self._lock:
                        self._revision += 1
                        run.revision = self._revision
            self._complete, problem = True, ""
        except VinedresserError as error:
            problem = visible(str(error))
        finally:
            self._problem = problem

    def _list(self, names: Sequence[str]) -> None:
        """Number new runs, and drop those that were removed."""
        known = set(names)
        with self._lock:
            for name in [name for name in self._runs if name not in known]:
                gone = self._runs.pop(name)
                del self._numbered[gone.number]
                self._drawn.pop(gone.number, None)
                self._revision += 1
                self._removed[gone.number] = self._revision
            for name in names:
                if name not in self._runs:
                    number = len(self._numbered) + len(self._removed)
                    self._runs[name] = self._numbered[number] = ListedRun(self._store, name, number)
            self._listed = len(names)
