"""The lifecycle of a run: the order of its stages, their errors, and many runs at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vinedresser.errors import LaunchError, StoreError, VinedresserError
from vinedresser.infra.supervise.launcher import prepare_run
from vinedresser.processes import this_process
from vinedresser.store.reading.reader import open_run
from vinedresser.store.reading.step import Step
from vinedresser.store.records import LaunchRecord, new_run
from vinedresser.tasks.config.experiment import Experiment
from vinedresser.tasks.lifecycle.run_queue import RunQueue, run_queue
from vinedresser.tasks.lifecycle.supervision import Attendance, Stages, supervise
from vinedresser.tasks.places.run_place import RunPlace

FLOW: ContextVar[str] = ContextVar("flow", default="")


class Recorder:
    """Stages that note their calls.

    Args:
        errors: error of each stage that fails, by name.
    """

    def __init__(self, errors: dict[str, Exception] | None = None) -> None:
        self.calls: list[str] = []
        self._errors = errors or {}
        self._lock = threading.Lock()

    def stages(self) -> Stages:
        def follow(place: RunPlace, jobs: Sequence[Callable[[], None]]) -> None:
            for job in jobs:
                job()
            self._note("follow", place)

        return Stages(
            launch=lambda place: self._note("launch", place),
            judge=lambda place, group: self._note(f"judge {group}", place),
            follow=follow,
            finish=lambda place: self._note("finish", place),
        )

    def _note(self, stage: str, place: RunPlace) -> None:
        with self._lock:
            self.calls.append(f"{stage} {place.name} {FLOW.get()}".strip())
        if stage in self._errors:
            raise self._errors[stage]


def test_a_run_is_settled_last_and_by_every_stage_in_the_context_of_the_caller() -> None:
    recorder, launched = Recorder(), threading.Event()
    compared: list[str] = []
    attendance = Attendance(
        ("fast", "slow"), record=False, additional=False, compare=lambda: compared.append("yes")
    )
    FLOW.set("mine")
    errors = supervise(RunPlace(Path("one")), attendance, recorder.stages(), launched.set)
    assert errors == []
    assert launched.is_set()
    assert compared == ["yes"]
    assert recorder.calls[-1] == "finish one mine"
    names = {"launch", "judge fast", "judge slow", "follow", "finish"}
    assert set(recorder.calls) == {f"{name} one mine" for name in names}


def test_a_stage_that_fails_keeps_no_other_from_its_work() -> None:
    failures = {
        "launch": LaunchError("no program"),
        "judge fast": VinedresserError("no judge"),
        "finish": StoreError("no store"),
    }
    recorder, launched = Recorder(dict(failures)), threading.Event()
    attendance = Attendance(("fast",), record=False, additional=False)
    errors = supervise(RunPlace(Path("one")), attendance, recorder.stages(), launched.set)
    assert errors == list(failures.values())
    assert launched.is_set()
    assert len(recorder.calls) == 3


@pytest.mark.timeout(60)
def test_followers_of_a_run_end_if_its_launch_fails_without_a_record(tmp_path: Path) -> None:
    run = tmp_path / "run"
    # This process, its owner, lives.
    launch = LaunchRecord(["true"], str(tmp_path), owner=asdict(this_process()))
    prepare_run(run, new_run("run"), launch)
    steps: list[Step] = []

    def fail(_: RunPlace) -> None:
        raise LaunchError("the server of the tasks is gone")

    attendance = Attendance(compare=lambda: steps.extend(open_run(run).follow()))
    stages = Stages(launch=fail, finish=lambda _: None)
    (error,) = supervise(RunPlace(run), attendance, stages)
    assert str(error) == "the server of the tasks is gone"
    assert steps == []
    status = open_run(run).status
    assert (status.state, status.code) == ("crashed", 126)
    assert status.reason == "it was not started: the server of the tasks is gone"


class Numbers(RunQueue[int]):
    """A queue of numbers, each with a run of its own; 1 trains twice, 2 cannot begin."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.settled: list[int] = []
        self._waiting = deque(range(count))

    def next(self) -> int | None:
        return self._waiting.popleft() if self._waiting else None

    def begin(self, item: int) -> RunPlace | None:
        return None if item == 2 else RunPlace(Path(str(item)))

    def ended(self, item: int) -> None:
        self.settled.append(item)
        if self.settled.count(1) == 1 and item == 1:
            self._waiting.append(item)


class Late(Numbers):
    """A queue that gets another number while the first one trains."""

    look = 0.01

    def __init__(self) -> None:
        super().__init__(1)

    def add(self, item: int) -> None:
        self._waiting.append(item)


def test_an_item_that_comes_while_others_train_begins_if_there_is_room() -> None:
    queue, begun = Late(), threading.Event()

    def launch(place: RunPlace) -> None:
        if place.name == "0":
            queue.add(3)
            # It trains until the other one has begun.
            assert begun.wait(30)
        else:
            begun.set()

    run = SimpleNamespace(attach=False, preflight=False)
    experiment = cast(Any, SimpleNamespace(max_concurrent=2, rules={}, run=run))
    stages = (
        Recorder()
        .stages()
        ._replace(
            launch=launch,
            finish=lambda _: None,
            follow=lambda *_: None,
            judge=lambda *_: None,
        )
    )
    run_queue(queue, cast(Experiment, experiment), stages)
    assert sorted(queue.settled) == [0, 3]
    assert list(queue.problems) == []


@pytest.mark.parametrize("slots", [1, 3])
def test_no_more_runs_train_than_there_are_slots(slots: int) -> None:
    training, most, lock = [0], [0], threading.Lock()

    def launch(_: RunPlace) -> None:
        with lock:
            training[0] += 1
            most[0] = max(most[0], training[0])
        threading.Event().wait(0.02)
        with lock:
            training[0] -= 1

    def finish(place: RunPlace) -> None:
        if place.name in ("4", "5"):
            raise StoreError("no store")

    run = SimpleNamespace(attach=False, preflight=False)
    experiment = cast(Any, SimpleNamespace(max_concurrent=slots, rules={}, run=run))
    queue = Numbers(8)
    stages = (
        Recorder()
        .stages()
        ._replace(launch=launch, finish=finish, follow=lambda *_: None, judge=lambda *_: None)
    )
    run_queue(queue, cast(Experiment, experiment), stages)
    assert sorted(queue.settled) == [0, 1, 1, 3, 4, 5, 6, 7]
    assert most[0] <= slots
    assert list(queue.problems) == ["no store"]
