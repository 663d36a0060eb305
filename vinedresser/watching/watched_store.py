"""A store that is watched: the view of its table and of each of its runs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable

from vinedresser.explain.comparison.comparing import Comparison
from vinedresser.explain.watching.moment import moment
from vinedresser.explain.watching.run_view import run_view
from vinedresser.explain.watching.view import View
from vinedresser.objects import Location, Storage
from vinedresser.store.reading.reader import Run
from vinedresser.store.reading.run_store import RunStore
from vinedresser.watching.chosen_runs import compare_chosen
from vinedresser.watching.feed import Feed
from vinedresser.watching.query_panel import MOST_PANELS, QueryPanel
from vinedresser.watching.store_table import StoreTable

__all__ = ["WatchedRun", "WatchedStore"]

# Runs whose pages are kept ready.
_MOST_FEEDS = 8


class WatchedRun:
    """A run of a store, opened for its page.

    Args:
        name: its name there.

    Attributes:
        feed: its newest view.
    """

    def __init__(self, store: RunStore, name: str) -> None:
        self._store = store
        self._name = name
        self._run: Run | None = None
        self._seen: tuple[Hashable, View] | None = None
        self._looked_at: Run | None = None
        self._looking = threading.Lock()
        self.feed = Feed(self._view, name)
        self._panels: OrderedDict[str, QueryPanel] = OrderedDict()

    def _view(self) -> View:
        """Return the view of what is committed; the last one if nothing has changed."""
        if self._run is None:
            self._run = self._store[self._name]
        run = self._run
        run.refresh()
        findings = repr([finding.to_json() for finding in run.findings()])
        records = [len(run.steps(None, rank)) for rank in run.ranks]
        key = (tuple(records), run.status, findings, len(run.controls()))
        if self._seen is None or self._seen[0] != key:
            self._seen = (key, run_view(run, [*self._store]))
        return self._seen[1]

    @property
    def storage(self) -> Storage:
        """Storage of the run.

        Raises:
            UnknownRun: the run was removed.
            StoreError: the storage refused.
        """
        return self._store[self._name].storage

    def moment(self, step: int) -> str:
        """Return the section of one step; one thread at a time.

        Raises:
            NotARun: the run was removed.
            StoreError: the storage refused.
        """
        with self._looking:
            # Runs are not thread-safe, and the view may be in the making.
            if self._looked_at is None:
                self._looked_at = self._store[self._name]
            self._looked_at.refresh()
            return moment(self._looked_at, step)

    def panel(self, text: str) -> QueryPanel:
        """Return the panel of a query, which is kept as long as somebody looks at it.

        Args:
            text: the query; see `QueryPanel`.

        Raises:
            ConfigError: the text is not a query.
            NotARun: the run was removed.
            StoreError: the storage refused.
        """
        with self._looking:
            panel = self._panels.pop(text, None)
            if panel is None:
                panel = QueryPanel(self._store[self._name], text)
            self._panels[text] = panel
            while len(self._panels) > MOST_PANELS:
                self._panels.popitem(last=False)
            return panel


class WatchedStore:
    """The runs of a store, each opened once.

    Args:
        single: the store is a run itself.

    Attributes:
        table: its runs as rows.
    """

    def __init__(self, store: RunStore, *, single: bool) -> None:
        self._store = store
        self.single = single
        self._lock = threading.Lock()
        # A comparison takes a core: of several pages, one at a time.
        self._comparing = threading.Lock()
        self._watched: OrderedDict[str, WatchedRun] = OrderedDict()
        self.table = StoreTable(store)

    @property
    def location(self) -> Location:
        """Directory or address of the store."""
        return self._store.location

    def compare(self, numbers: Iterable[int], metric: str) -> Comparison:
        """Compare runs of the table; see `compare_chosen`.

        Args:
            metric: the scalar by which they are ranked; "": see `choose_goal`.

        Raises:
            ConfigError: fewer than two of them can be read, or the direction of the metric is
                unknown.
            StoreError: the storage refused.
        """
        names = [run.name for run in self.table.runs(numbers)]
        with self._comparing:
            return compare_chosen(self._store, names, metric)

    @property
    def only(self) -> str:
        """Name of the run if the store is a run itself."""
        return next(iter(self._store))

    def run(self, name: str) -> WatchedRun | None:
        """Return a run; None if the store does not list the name.

        Args:
            name: a name from a request: only the names of the listing lead to files.

        Raises:
            NotARun: the store was removed.
            StoreError: the storage refused.
        """
        with self._lock:
            if name not in self._store:
                self._store.refresh()
            if name not in self._store:
                return None
            watched = self._watched.pop(name, None) or WatchedRun(self._store, name)
            self._watched[name] = watched
            while len(self._watched) > _MOST_FEEDS:
                self._watched.popitem(last=False)
            return watched
