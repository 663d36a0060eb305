"""`vinedresser watch --terminal`: the table of a store and its runs, driven by keys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Sparkline, Static

from tests.cli.command_line import vinedresser
from tests.watching.varied_store import HOSTILE, STEPS, loss_at, varied_store
from vinedresser.cli.live.terminal_table import RunScreen, TerminalTable
from vinedresser.plain_text import visible
from vinedresser.store.reading.run_store import RunStore
from vinedresser.testing.runs import make_run, step_record
from vinedresser.watching.store_table import StoreTable

RUNS = 17
Keys = Callable[[Pilot[None]], Awaitable[None]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return varied_store(tmp_path_factory.mktemp("store"))


def driven(store: Path, keys: Keys) -> None:
    """Run the application on a screen of 160 × 60, and press keys."""

    async def drive() -> None:
        app = TerminalTable(StoreTable(RunStore(store)))
        async with app.run_test(size=(160, 60)) as pilot:
            await keys(pilot)

    asyncio.run(drive())


async def shown(pilot: Pilot[None], condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, f"{what} is not shown"
        await pilot.pause(0.05)


def rows(pilot: Pilot[None]) -> list[list[str]]:
    table = pilot.app.screen_stack[0].query_one(DataTable)
    return [[str(cell) for cell in table.get_row(key)] for key in table.rows]


def names(pilot: Pilot[None]) -> list[str]:
    return [row[0] for row in rows(pilot)]


def test_all_runs_are_listed_with_the_best_first_and_names_are_plain_text(store: Path) -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await shown(pilot, lambda: len(rows(pilot)) == RUNS, "each run")
        best = min((loss_at(STEPS - 1, 1.0, seed), seed) for seed in (1, 2))[1]
        assert names(pilot)[0] == f"sigmoid-1-{best}"
        assert visible(HOSTILE) in names(pilot)
        diverged = next(row for row in rows(pilot) if row[0] == "relu-1-1")
        assert "exploding_loss" in diverged[1] + diverged[4]
        await pilot.press("s")
        assert names(pilot) == sorted(names(pilot))

    driven(store, keys)


def test_a_filter_keeps_the_runs_that_have_all_words(store: Path) -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await shown(pilot, lambda: len(rows(pilot)) == RUNS, "each run")
        await pilot.press("slash", *"relu", "space", *"seed=2")
        await shown(pilot, lambda: len(rows(pilot)) == 4, "each run of the filter")
        assert all(name.startswith("relu") and name.endswith("2") for name in names(pilot))
        await pilot.press("enter")
        assert isinstance(pilot.app.focused, DataTable)

    driven(store, keys)


def test_a_run_opens_with_verdict_findings_and_curves_and_closes(store: Path) -> None:
    async def keys(pilot: Pilot[None]) -> None:
        await shown(pilot, lambda: len(rows(pilot)) == RUNS, "each run")
        await pilot.press("slash", *"relu-1-1", "enter", "enter")
        await shown(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
        curve = pilot.app.screen.query_one("#curve-0", Sparkline)
        await shown(pilot, lambda: bool(curve.data), "a curve")
        # It diverges at step 40, and is not finite from step 60 on.
        assert curve.data is not None
        assert list(curve.data[:40]) == [loss_at(step, 1.0, 1) for step in range(40)]
        assert len(curve.data) == 60
        told = str(pilot.app.screen.query_one("#verdict", Static).render())
        assert "exploding_loss since step 40" in told
        assert "lr 1.0" in told
        await pilot.press("escape")
        assert not isinstance(pilot.app.screen, RunScreen)

    driven(store, keys)


def test_peaks_are_drawn_and_further_curves_are_named(tmp_path: Path) -> None:
    records = [
        step_record(s, scalars={f"metrics/m{n}": float(s == 1501) for n in range(9)}, at=float(s))
        for s in range(3000)
    ]
    make_run(tmp_path / "run", records, name="run")

    async def keys(pilot: Pilot[None]) -> None:
        await shown(pilot, lambda: names(pilot) == ["run"], "the run")
        await pilot.press("enter")
        await shown(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
        curve = pilot.app.screen.query_one("#curve-0", Sparkline)
        await shown(pilot, lambda: bool(curve.data), "a curve")
        assert max(curve.data or []) == 1
        others = str(pilot.app.screen.query_one("#others", Static).render())
        assert others == "not drawn: train/m8"

    driven(tmp_path, keys)


def test_runs_that_begin_are_added_and_damaged_ones_are_named(tmp_path: Path) -> None:
    make_run(tmp_path / "first", [step_record(0, at=1.0)], name="first")

    async def keys(pilot: Pilot[None]) -> None:
        await shown(pilot, lambda: names(pilot) == ["first"], "the first run")
        make_run(tmp_path / "second", [step_record(0, at=2.0)], name="second")
        await shown(pilot, lambda: sorted(names(pilot)) == ["first", "second"], "the second run")
        make_run(tmp_path / "third", [step_record(0, at=2.0)], name="third")
        (tmp_path / "third" / "run.json").write_text("{")
        await shown(
            pilot, lambda: any(row[1] == "unreadable" for row in rows(pilot)), "what is damaged"
        )

    driven(tmp_path, keys)


def test_without_a_terminal_it_says_so(store: Path) -> None:
    ended = vinedresser("watch", str(store), "--terminal", cwd=store)
    assert ended.returncode == 2
    assert ended.stderr.startswith("vinedresser: --terminal: the output is no terminal")
