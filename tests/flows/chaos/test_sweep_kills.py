"""One kill of each kind in a sweep; `make chaos` has many, with servers of Prefect and MLflow."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path

import pytest

from tests.flows.chaos.chaos_sweep import sweep_with_kills
from tests.flows.chaos.chaos_trainer import EPOCH
from tests.flows.chaos.chaos_world import Size, World, until
from vinedresser.store.records import OwnerRecord

pytestmark = pytest.mark.timeout(600)


@pytest.mark.slow  # CI kills each of these in a training; `make chaos` kills more of them
def test_a_sweep_whose_processes_are_killed_comes_out_right(tmp_path: Path) -> None:
    world = World(tmp_path, remote=True, servers=False)
    try:
        size = Size(trials=2, epochs=30, pause=0.5)
        world.write("search", size)
        kinds = ["trainer", "supervisor", "judge", "relay", "SeaweedFS", "flow"]
        kills = sweep_with_kills(world, size, deque(kinds), random.Random(0), lambda _: None)
        assert [kill.kind for kill in kills] == kinds
    finally:
        world.close()


@pytest.mark.thorough
def test_trials_of_a_killed_flow_are_adopted(tmp_path: Path) -> None:
    world = World(tmp_path, remote=False, servers=False)
    try:
        hold = tmp_path / "hold"
        size = Size(trials=2, epochs=6, pause=0.1)
        world.write("search", size, hold=hold)
        world.start()
        store = tmp_path / "runs" / "search"
        # All epochs but the last.
        until(lambda: world.progress() == 2 * 5 * EPOCH, "two trials that wait")
        assert world.kill("flow", random.Random(0))
        world.go_on()
        until(lambda: len([*store.glob(f"*/{OwnerRecord.KEY}")]) == 2, "both to be adopted")
        hold.touch()
        until(lambda: world.code is not None, "the end of the sweep")
        assert world.code == 0, world.said()
        assert world.whole(size)
        assert sorted(world.finished_runs()) == ["trial-0000", "trial-0001"]
        assert [*world.broken_off()] == []
        ends = {"search": "FINISHED", "trial-0000": "FINISHED", "trial-0001": "FINISHED"}
        assert world.mlflow_runs() == ends
        until(lambda: not world.left(), "the last process to end")
    finally:
        world.close()
