"""The table of a store in the terminal, for machines that are reached by ssh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Sparkline, Static

from vinedresser.cli.views.console import plain
from vinedresser.errors import StoreError
from vinedresser.explain.formatting import number
from vinedresser.objects import Location
from vinedresser.plain_text import visible
from vinedresser.store.reading.run_store import RunStore
from vinedresser.store.reading.series import Column
from vinedresser.watching.store_table import ListedRun, StoreTable

__all__ = ["RunScreen", "TerminalTable", "watch_in_terminal"]

_SECONDS = 1.0
_STYLES = {"good": "green", "warn": "yellow", "bad": "bold red"}
_COLUMNS = ("run", "verdict", "steps", "result", "reason")
# Curves of a run, and values of each that are drawn at most.
_MOST_CURVES, _MOST_VALUES = 8, 1000
# What the table is sorted by, in turn; the first is the result.
_ORDERS = ("result", "name", "kind", "steps")

_Row = Mapping[str, Any]


def watch_in_terminal(where: Location) -> None:
    """Show the runs of a store, or one run, in the terminal until the user quits.

    Raises:
        NotARun: the directory does not exist.
        StoreError: the object store refused.
    """
    TerminalTable(StoreTable(RunStore(where.resolve() if isinstance(where, Path) else where))).run()


class TerminalTable(App[None]):
    """The runs of a store, one row each, with the curves and findings of a run behind it."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Input { display: none; }
    Input.shown { display: block; }
    Sparkline { height: 3; margin: 0 2 1 2; }
    Static { margin: 0 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter"),
        Binding("s", "sort", "sort"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, table: StoreTable) -> None:
        super().__init__()
        self._table = table
        self._rows: dict[int, _Row] = {}
        self._revision = 0
        self._metric = ""
        self._lower_is_better = True
        self._sorted = 0
        self._words: list[str] = []

    def compose(self) -> ComposeResult:
        """See `App.compose`."""
        yield Static(id="summary", markup=False)
        yield Input(placeholder="words that a run must contain, such as: stopped lr=0.1")
        yield DataTable(cursor_type="row")
        yield Footer()

    def on_mount(self) -> None:
        """See `App`."""
        self._list.add_columns(*_COLUMNS)
        self._list.focus()
        self.set_interval(_SECONDS, self._read)
        self._read()

    @property
    def _list(self) -> DataTable[Text]:
        found: DataTable[Text] = self.query_one(DataTable)
        return found

    @work(thread=True, exclusive=True)
    def _read(self) -> None:
        """Read what has changed; the terminal answers meanwhile."""
        self.call_from_thread(self._show, self._table.changes(self._revision))

    def _show(self, changes: Mapping[str, Any]) -> None:
        self._revision = changes["revision"]
        for one in changes["removed"]:
            self._rows.pop(one, None)
        self._rows |= {row["id"]: row for row in changes["rows"]}
        goal = changes["goal"] or {}
        self._metric = goal.get("metric", "")
        self._lower_is_better = goal.get("direction") != "maximize"
        running = sum(row["state"] == "running" for row in self._rows.values())
        still = " (reading)" if len(self._rows) < changes["listed"] else ""
        self.query_one("#summary", Static).update(
            f"{changes['location']}   {len(self._rows):,} of {changes['listed']:,} runs{still}, "
            f"{running:,} running   {changes['problem']}"
        )
        if changes["rows"] or changes["removed"]:
            self._draw()

    def _draw(self) -> None:
        """Draw the rows that have all words, in the chosen order; the cursor stays on its run."""
        chosen = [row for row in self._rows.values() if _has(row, self._words)]
        chosen.sort(key=partial(_place, metric=self._metric, lower=self._lower_is_better))
        if self._sorted:
            chosen.sort(key=itemgetter(_ORDERS[self._sorted]))
        table = self._list
        before = self._number(table.cursor_row)
        table.clear()
        for row in chosen:
            table.add_row(*_cells(row, self._metric), key=str(row["id"]))
        if before is not None and str(before) in table.rows:
            table.move_cursor(row=table.get_row_index(str(before)))

    def _number(self, place: int) -> int | None:
        keys = [*self._list.rows]
        return int(keys[place].value or 0) if 0 <= place < len(keys) else None

    def action_sort(self) -> None:
        """Sort by the next of: result, name, verdict, steps."""
        self._sorted = (self._sorted + 1) % len(_ORDERS)
        self._draw()

    def action_filter(self) -> None:
        """Ask for the words that a run must contain."""
        box = self.query_one(Input)
        box.add_class("shown")
        box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the runs that contain all words so far."""
        self._words = event.value.lower().split()
        self._draw()

    def on_input_submitted(self) -> None:
        """Return to the table."""
        box = self.query_one(Input)
        box.set_class(bool(box.value), "shown")
        self._list.focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the run."""
        number = int(event.row_key.value or 0)
        for run in self._table.runs([number]):
            self.push_screen(RunScreen(run))


class RunScreen(Screen[None]):
    """A run: its verdict, findings, settings and curves."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "back")]

    def __init__(self, run: ListedRun) -> None:
        super().__init__()
        self._run = run

    def compose(self) -> ComposeResult:
        """See `Screen.compose`."""
        with VerticalScroll():
            yield Static(id="verdict", markup=False)
            for place in range(_MOST_CURVES):
                yield Static(id=f"name-{place}", markup=False)
                yield Sparkline(id=f"curve-{place}")
            yield Static(id="others", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """See `Screen`."""
        self.set_interval(_SECONDS, self._read)
        self._read()

    @work(thread=True, exclusive=True)
    def _read(self) -> None:
        """Read the run as of its row, which the table renews."""
        row = self._run.row
        scalars: Mapping[str, Column] = {}
        problem = ""
        try:
            scalars = self._run.scalars()
        except StoreError as error:
            problem = visible(str(error))
        if row is not None:
            self.app.call_from_thread(self._show, row.to_json(), scalars, problem)

    def _show(self, row: _Row, scalars: Mapping[str, Column], problem: str) -> None:
        self.query_one("#verdict", Static).update(_told(row))
        curves = [
            (name, column.values[np.isfinite(column.values)]) for name, column in scalars.items()
        ]
        known = [(name, values) for name, values in curves if len(values) > 1]
        drawn, others = known[:_MOST_CURVES], ", ".join(name for name, _ in known[_MOST_CURVES:])
        self.query_one("#others", Static).update(problem or (others and f"not drawn: {others}"))
        for place in range(_MOST_CURVES):
            name, curve = (
                self.query_one(f"#name-{place}"),
                self.query_one(f"#curve-{place}", Sparkline),
            )
            name.display = curve.display = place < len(drawn)
            if place < len(drawn):
                called, values = drawn[place]
                first, last = number(float(values[0])), number(float(values[-1]))
                self.query_one(f"#name-{place}", Static).update(f"{called}   {first} → {last}")
                # The highest of each part, as in the bars.
                starts = np.arange(0, len(values), len(values) // _MOST_VALUES + 1)
                curve.data = np.maximum.reduceat(values, starts).tolist()


def _told(row: _Row) -> Text:
    """Return verdict, findings and parameters of a run, as lines."""
    text = plain(f"{row['name']}   ").append_text(plain(row["words"], _STYLES.get(row["tone"], "")))
    lines = [row["reason"], row["cause"] and f"likely cause   {row['cause']}"]
    lines += [
        f"{one['severity']}: {one['rule']} since step {one['since']}: {one['seen']}"
        for one in row["findings"]
    ]
    settings = ", ".join(f"{name} {value}" for name, value in row["parameters"].items())
    for line in [*lines, settings]:
        if line:
            text.append("\n").append_text(plain(line))
    return text.append("\n")


def _cells(row: _Row, metric: str) -> list[Text]:
    steps = f"{row['steps']:,}" + (f" of {row['total']:,}" if row["total"] else "")
    value = row["results"].get(metric)
    result = (
        "" if value is None else f"{metric} {value if isinstance(value, str) else number(value)}"
    )
    verdict = plain(row["words"], _STYLES.get(row["tone"], ""))
    return [plain(row["name"]), verdict, plain(steps), plain(result), plain(row["reason"])]


def _has(row: _Row, words: Sequence[str]) -> bool:
    """Return whether name, verdict, findings or settings of a run contain all words."""
    settings = " ".join(f"{name}={value}" for name, value in row["parameters"].items())
    rules = " ".join(one["rule"] for one in row["findings"])
    text = " ".join((row["name"], row["words"], row["state"], rules, settings)).lower()
    return all(word in text for word in words)


def _place(row: _Row, metric: str, *, lower: bool) -> tuple[bool, bool, float]:
    """Return the place of a run: those that train, then by result, the best first."""
    value = row["results"].get(metric)
    known = isinstance(value, int | float)
    return row["state"] != "running", not known, (value if lower else -value) if known else 0.0
