"""Changes of a running training are made once, between two steps, and noted in the run."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.rules.actions.test_trainer import Small, answered, ask
from vinedresser.capture import Hook
from vinedresser.capture.live.settings import LiveSettings
from vinedresser.errors import ConfigError
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ControlRecord, TrainerAnswer, read_journal


class Knob:
    """A number of a training that is no parameter of an optimizer."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.sets: list[float] = []

    def get(self) -> float:
        return self.value

    def set(self, value: float) -> None:
        self.value = value
        self.sets.append(value)


def loop_until(hook: Hook, condition: Callable[[], object], event: str = "") -> int:
    """Report steps until a condition holds; return their number."""
    deadline, steps = time.monotonic() + 60, 0
    while not condition():
        assert time.monotonic() < deadline
        hook.step(loss=1.0)
        steps += 1
        if event:
            hook.event(event)
        time.sleep(0.005)
    return steps


def tampered(path: Path, **fields: Any) -> Callable[[], TrainerAnswer | None]:
    """Make a request with fields that no client of ours writes."""
    look = ask(path, "resume")
    file = max((path / "trainer_requests").iterdir())
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return look


def journal(path: Path) -> list[ControlRecord]:
    faults: list[str] = []
    found = read_journal(LocalStorage(path), ControlRecord, faults)
    assert faults == []
    return found


@pytest.mark.thorough
def test_a_number_of_the_script_is_set_once(tmp_path: Path) -> None:
    path, knob = tmp_path / "run", Knob(0.5)
    with Hook(path) as hook:
        hook.tunable("mixup", get=knob.get, set=knob.set, min=0, max=1)
        look = ask(path, "adjust", parameter="mixup", value=0.25)
        loop_until(hook, look)
        for _ in range(20):
            hook.step(loss=1.0)
    answer = answered(look)
    assert (answer.refused, answer.old, answer.new) == ("", [0.5], [0.25])
    assert knob.sets == [0.25]
    assert [(one.words, one.step) for one in journal(path)] == [("mixup 0.5 → 0.25", answer.step)]


@pytest.mark.thorough
def test_what_is_not_allowed_is_refused_in_one_line(tmp_path: Path) -> None:
    path, knob, size = tmp_path / "run", Knob(0.5), Knob(32)
    with Hook(path) as hook:
        hook.tunable("mixup", get=knob.get, set=knob.set, min=0, max=1)
        hook.tunable("batch_size", get=size.get, set=size.set, min=1)
        wrong: dict[str, Callable[[], TrainerAnswer | None]] = {
            "which is not within 0 and 1": ask(path, "adjust", parameter="mixup", value=1.5),
            "did you mean mixup?": ask(path, "adjust", parameter="mixap", value=0.5),
            "cannot be set to nan": ask(path, "adjust", parameter="mixup", value=math.nan),
            "must be an integer, not 16.5": ask(path, "adjust", parameter="batch_size", value=16.5),
            "value is 'high', which is not": tampered(path, value="high"),
            "'explode'": tampered(path, kind="explode"),
            "takes no snapshots": ask(path, "snapshot"),
            "not paused": ask(path, "resume"),
        }
        right = ask(path, "adjust", parameter="batch_size", value=16)
        loop_until(hook, lambda: right() and all(look() for look in wrong.values()))
    for words, look in wrong.items():
        refused = answered(look).refused
        assert words in refused
        assert "\n" not in refused
    assert (knob.sets, size.sets) == ([], [16])
    assert type(size.value) is int


@pytest.mark.thorough
def test_a_change_waits_for_its_step_and_another_one_for_the_epoch(tmp_path: Path) -> None:
    path, knob = tmp_path / "run", Knob(1.0)
    with Hook(path) as hook:
        hook.tunable("knob", get=knob.get, set=knob.set)
        late = ask(path, "adjust", parameter="knob", value=4.0, at=3000)
        epoch = ask(path, "adjust", parameter="knob", value=3.0, event="epoch")
        soon = ask(path, "adjust", parameter="knob", value=2.0)
        loop_until(hook, soon)
        assert epoch() is None
        hook.event("epoch")
        at_epoch = hook._session.recorder.steps
        assert knob.sets == [2.0, 3.0]
        while hook._session.recorder.steps < 3002:
            hook.step(loss=1.0)
        loop_until(hook, late)
    assert answered(epoch).step == at_epoch
    assert knob.sets == [2.0, 3.0, 4.0]
    assert answered(late).step == 3000


@pytest.mark.thorough
def test_replayed_changes_give_the_same_training(tmp_path: Path) -> None:
    first = Small()
    with Hook(tmp_path / "one", tunable={"lr": first.optimizer}) as hook:
        hook.watch(first.model, optimizer=first.optimizer)
        look = ask(tmp_path / "one", "adjust", parameter="lr", factor=0.5)
        first.until(look, more=20)
    step = answered(look).step

    again = Small()
    live = LiveSettings(replay=str(tmp_path / "one"))
    with Hook(tmp_path / "two", tunable={"lr": again.optimizer}, live=live) as hook:
        hook.watch(again.model, optimizer=again.optimizer)
        for _ in range(first.steps):
            again.step()
    assert again.state() == first.state()
    assert [(one.step, one.new) for one in journal(tmp_path / "two")] == [(step, [0.005])]
    with pytest.raises(ConfigError, match="nothing was changed"):
        Hook(tmp_path / "three", live=LiveSettings(replay=str(tmp_path / "nowhere")))


@pytest.mark.slow
def test_a_paused_training_waits_and_takes_changes(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = Small()
    seen: dict[str, Any] = {}

    def steer() -> None:
        """Pause, change the learning rate, and resume, like a person in another process."""
        storage = LocalStorage(path)
        paused = ask(path, "pause", seconds=60.0)
        await_(paused)
        steps = training.steps
        changed = ask(path, "adjust", parameter="lr", value=0.002)
        await_(changed)
        beats = [storage.get("heartbeat/0.json")]
        await_(lambda: storage.get("heartbeat/0.json") != beats[0])
        seen.update(before=steps, after=training.steps, lr=answered(changed).step)
        await_(ask(path, "resume"))

    def await_(look: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while not look():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    with Hook(path, tunable={"lr": (training.optimizer, training.schedule)}) as hook:
        hook.watch(training.model, optimizer=training.optimizer)
        thread = threading.Thread(target=steer)
        thread.start()
        training.until(lambda: not thread.is_alive(), more=5)
    assert seen["before"] == seen["after"]
    kinds = [one.kind for one in journal(path)]
    assert kinds == ["pause", "adjust", "resume"]
    alone = Small()
    for step in range(training.steps):
        if step == seen["lr"]:
            alone.optimizer.param_groups[0]["lr"] = 0.002
            alone.schedule.base_lrs = [0.002]
        alone.step()
    assert training.state() == alone.state()


@pytest.mark.thorough
def test_a_pause_ends_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Hook(path, live=LiveSettings(control=True)) as hook:
        loop_until(hook, ask(path, "pause", seconds=0.2))
    ended = journal(path)[-1]
    assert (ended.kind, ended.reason) == ("resume", "the time is up")
    assert ended.seconds is not None
    assert 0.2 <= ended.seconds < 30


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["pause", "stop"])
def test_without_the_right_to_control_nothing_is_paused_or_stopped(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "run"
    with Hook(path) as hook:
        look = ask(path, kind)
        loop_until(hook, look)
    assert "neither a tunable nor control = true" in answered(look).refused
    assert journal(path) == []


@pytest.mark.thorough
def test_control_false_forbids_declared_changes(tmp_path: Path) -> None:
    path, knob = tmp_path / "run", Knob(1.0)
    with Hook(path, live=LiveSettings(control=False)) as hook:
        hook.tunable("knob", get=knob.get, set=knob.set)
        look = ask(path, "adjust", parameter="knob", value=2.0)
        loop_until(hook, look)
    assert "control = false" in answered(look).refused
    assert knob.sets == []


@pytest.mark.thorough
def test_a_training_without_a_supervisor_is_stopped_with_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = Small()
    hook = Hook(path, tunable={"lr": training.optimizer})
    hook.watch(training.model, optimizer=training.optimizer)
    ask(path, "stop")
    with pytest.raises(SystemExit) as stopped:
        training.until(lambda: False)
    assert stopped.value.code == 0
    assert list((path / "checkpoints").iterdir())


@pytest.mark.thorough
def test_a_snapshot_of_the_next_step_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = Small()
    with Hook(path, guard="nonfinite").watch(training.model, optimizer=training.optimizer):
        look = ask(path, "snapshot")
        training.until(look, more=3)
    step = answered(look).step
    assert [one.name for one in (path / "snapshots").iterdir()] == [f"step-{step}"]


@pytest.mark.thorough
def test_a_change_after_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = Small()
    with Hook(path, tunable={"lr": training.optimizer}) as hook:
        hook.watch(training.model, optimizer=training.optimizer)
        look = ask(path, "adjust", parameter="lr", value=0.001, checkpoint_first=True)
        training.until(look)
    answer = answered(look)
    assert answer.files == [f"checkpoints/step-{answer.step}.safetensors"]
    assert (path / answer.files[0]).is_file()
    assert torch.tensor(answer.new).tolist() == pytest.approx([0.001])


def test_only_numbers_can_be_declared(tmp_path: Path) -> None:
    knob = Knob(1.0)
    with Hook(tmp_path / "run") as hook:
        with pytest.raises(ConfigError, match="pass both get and set"):
            hook.tunable("knob", get=knob.get)
        with pytest.raises(ConfigError, match="is above max"):
            hook.tunable("knob", get=knob.get, set=knob.set, min=2, max=1)
        with pytest.raises(ConfigError, match="must be a word"):
            hook.tunable("a knob", get=knob.get, set=knob.set)
        with pytest.raises(ConfigError, match="not a number"):
            hook.tunable("knob", get=lambda: "high", set=knob.set)  # type: ignore[arg-type, return-value]
