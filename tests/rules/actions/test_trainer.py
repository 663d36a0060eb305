"""A training carries out actions between steps and does not change otherwise."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from vinedresser.capture import Collection, Hook, SaveConfig, open_run
from vinedresser.capture.requests.requesting import request_capture
from vinedresser.errors import ConfigError
from vinedresser.objects import LocalStorage
from vinedresser.store.records import (
    CaptureChange,
    TrainerAnswer,
    TrainerRequest,
    capture_change_key,
    read_record,
    trainer_answer_key,
    trainer_request_key,
    write_numbered,
)


class Small:
    """A small training with dropout and batch norm, which shows any additional random draw."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        layers = (nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
        self.model = nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1.0)
        self.steps = 0

    def step(self) -> None:
        self.optimizer.zero_grad()
        loss: Tensor = (self.model(torch.randn(16, 4)) - torch.randn(16, 1)).square().mean()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.steps += 1

    def until(self, condition: Callable[[], object], more: int = 0) -> None:
        """Train until a condition holds, and some steps more."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            self.step()
            time.sleep(0.005)
        for _ in range(more):
            self.step()

    def state(self) -> dict[str, bytes]:
        return {name: one.numpy().tobytes() for name, one in self.model.state_dict().items()}


def ask(path: Path, kind: Any, **more: Any) -> Callable[[], TrainerAnswer | None]:
    """Make a request, and return a function that reads the reply."""
    storage = LocalStorage(path)
    request = TrainerRequest("some", kind, "because", time.time(), **more)
    key = trainer_answer_key(write_numbered(storage, request, trainer_request_key), 0)
    return lambda: read_record(storage, TrainerAnswer, key=key)


def answered(look: Callable[[], TrainerAnswer | None]) -> TrainerAnswer:
    answer = look()
    assert answer is not None
    return answer


@pytest.mark.thorough
def test_snapshot_and_checkpoint_leave_the_training_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = Small()
    wanted = [Collection(name, save=SaveConfig(every=1)) for name in ("weights", "outputs")]
    with Hook(path).watch(training.model, optimizer=training.optimizer):
        number = request_capture(LocalStorage(path), wanted, steps=3)
        look = ask(path, "checkpoint")

        def changed() -> CaptureChange | None:
            return read_record(LocalStorage(path), CaptureChange, key=capture_change_key(number, 0))

        training.until(lambda: look() and changed(), more=20)
    answer, change = answered(look), changed()
    assert change is not None
    assert (answer.refused, change.refused) == ("", "")

    alone = Small()
    for step in range(training.steps):
        if step == answer.step:
            saved = load_file(path / answer.files[0])
            assert {name: one.numpy().tobytes() for name, one in saved.items()} == alone.state()
        alone.step()
    assert training.state() == alone.state()

    run = open_run(path)
    steps = run.tensor("weights/0.weight").steps().tolist()
    assert steps == list(range(change.step, change.step + 3))
    assert run.tensor("outputs/3").steps().tolist() == steps
    assert answer.files == [f"checkpoints/step-{answer.step}.safetensors"]
    # Captures of a snapshot do not change the run's configuration.
    assert "weights" not in run.info.capture


@pytest.mark.thorough
def test_the_learning_rate_changes_where_it_is_declared(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = Small()
    hook = Hook(path, tunable={"lr": (training.optimizer, training.schedule)})
    with hook.watch(training.model, optimizer=training.optimizer):
        look = ask(path, "adjust", parameter="lr", factor=0.5)
        training.until(look, more=20)
        # The base of the scheduler has changed, too.
        assert training.optimizer.param_groups[0]["lr"] == 0.005
    answer = answered(look)
    assert (answer.refused, answer.old, answer.new) == ("", [0.01], [0.005])

    alone = Small()
    for step in range(training.steps):
        if step == answer.step:
            alone.optimizer.param_groups[0]["lr"] = 0.005
            alone.schedule.base_lrs = [0.005]
        alone.step()
    assert training.state() == alone.state()


@pytest.mark.thorough
def test_a_parameter_that_is_not_declared_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = Small()
    with Hook(path).watch(training.model, optimizer=training.optimizer):
        look = ask(path, "adjust", parameter="lr", factor=0.5)
        training.until(look)
    assert "hook.tunable('lr', …)" in answered(look).refused
    assert training.optimizer.param_groups[0]["lr"] == 0.01
    alone = Small()
    for _ in range(training.steps):
        alone.step()
    assert training.state() == alone.state()


@pytest.mark.thorough
def test_an_invalid_value_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = Small()
    with Hook(path).watch(training.model, optimizer=training.optimizer) as hook:
        hook.tunable("lr", training.optimizer).tunable("clip", training.optimizer)
        looks = [
            ask(path, "adjust", parameter="lr", value=math.inf),
            ask(path, "adjust", parameter="lr", value=-1.0),
            ask(path, "adjust", parameter="clip", factor=0.5),
            ask(path, "adjust", parameter="lr"),
        ]
        training.until(lambda: all(look() for look in looks))
    assert all(answered(look).refused for look in looks)
    assert training.optimizer.param_groups[0]["lr"] == 0.01


@pytest.mark.thorough
def test_gradients_are_clipped_after_a_request(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = Small()
    every = SaveConfig(every=1)
    hook = Hook(path, collections={"gradients": every}, tunable={"clip": training.optimizer})
    with hook.watch(training.model, optimizer=training.optimizer):
        look = ask(path, "adjust", parameter="clip", value=0.01)
        training.until(look, more=5)
    answer = answered(look)
    assert (answer.old, answer.new) == ([], [0.01])

    alone = Small()

    def clip(*_: Any) -> None:
        nn.utils.clip_grad_norm_(alone.model.parameters(), 0.01)

    for step in range(training.steps):
        if step == answer.step:
            alone.optimizer.register_step_pre_hook(clip)
        alone.step()
    assert training.state() == alone.state()
    # The recorded gradients are those that the optimizer used.
    run = open_run(path)
    names = run.tensor_names(collection="gradients")

    def norm(step: int) -> float:
        parts = [float((run.tensor(name).value(step) ** 2).sum()) for name in names]
        return math.sqrt(sum(parts))

    assert norm(answer.step - 1) > 0.02
    assert norm(answer.step) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.thorough
def test_a_request_of_a_run_that_ends_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Hook(path) as hook:
        hook.step(loss=1.0)
        look = ask(path, "checkpoint")
        deadline = time.monotonic() + 60
        while hook._session.between_steps is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert answered(look).refused == "the training ended before its next step"


@pytest.mark.thorough
def test_a_loop_without_a_model_has_nothing_to_save(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with Hook(path) as hook:
        look = ask(path, "checkpoint")
        deadline = time.monotonic() + 60
        while look() is None:
            assert time.monotonic() < deadline
            hook.step(loss=1.0)
            time.sleep(0.01)
    assert "nothing was saved" in answered(look).refused


@pytest.mark.thorough
def test_several_processes_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    path = tmp_path / "run"
    training = Small()
    hook = Hook(path, tunable={"lr": training.optimizer})
    with hook.watch(training.model, optimizer=training.optimizer):
        look = ask(path, "adjust", parameter="lr", factor=0.5)
        training.until(look)
    assert "several processes" in answered(look).refused
    assert training.optimizer.param_groups[0]["lr"] == 0.01


def test_only_what_can_be_changed_can_be_declared(tmp_path: Path) -> None:
    training = Small()
    with Hook(tmp_path / "run") as hook:
        with pytest.raises(ConfigError, match="must be one of lr, clip"):
            hook.tunable("momentum", training.optimizer)
        with pytest.raises(ConfigError, match="pass an optimizer"):
            hook.tunable("lr")
        with pytest.raises(ConfigError, match=r"not supported by a builtins\.dict"):
            hook.tunable("lr", {"lr": 1})
        with pytest.raises(ConfigError, match="is not a scheduler of the optimizer"):
            hook.tunable("lr", training.optimizer, training.model)
