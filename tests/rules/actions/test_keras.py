"""Actions of a Keras training: a checkpoint, a new learning rate."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capture.keras_.zoo import cnn, images, seeded

import keras  # isort: skip
from vinedresser.capture import Hook
from vinedresser.errors import ConfigError
from vinedresser.objects import LocalStorage
from vinedresser.store.records import (
    TrainerAnswer,
    TrainerRequest,
    read_record,
    trainer_answer_key,
    trainer_request_key,
    write_numbered,
)

# Of Keras itself, whenever it makes an array of a variable.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


class Trained:
    """A compiled model, and the number of its train steps."""

    def __init__(self) -> None:
        self.model = seeded(cnn)
        self.optimizer = keras.optimizers.SGD(0.1)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.model.compile(self.optimizer, loss)
        x, y = images()
        self.batch = x[:8], y[:8]
        self.steps = 0

    def step(self) -> None:
        self.model.train_on_batch(*self.batch)
        self.steps += 1

    def weights(self) -> list[Any]:
        return [np.asarray(weight) for weight in self.model.get_weights()]


def same(some: list[Any], others: list[Any]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(some, others, strict=True))


@pytest.mark.thorough
def test_a_checkpoint_and_another_rate_at_a_step(tmp_path: Path) -> None:
    path = tmp_path / "run"
    storage = LocalStorage(path)
    trained = Trained()
    requests = [
        TrainerRequest("a", "checkpoint", "", 0.0),
        TrainerRequest("b", "adjust", "", 0.0, parameter="lr", factor=0.5),
    ]
    with Hook(path, tunable={"lr": trained.optimizer}).watch(trained.model):
        for request in requests:
            write_numbered(storage, request, trainer_request_key)
        deadline = time.monotonic() + 60
        while not storage.exists(trainer_answer_key(1, 0)):
            assert time.monotonic() < deadline
            trained.step()
            time.sleep(0.05)
        for _ in range(3):
            trained.step()
    saved, changed = (
        read_record(storage, TrainerAnswer, key=trainer_answer_key(number, 0)) for number in (0, 1)
    )
    assert saved is not None
    assert changed is not None
    assert (saved.refused, changed.refused) == ("", "")
    assert changed.old == pytest.approx([0.1])
    assert changed.new == pytest.approx([0.05])

    alone = Trained()
    for step in range(trained.steps):
        if step == saved.step:
            other = seeded(cnn)
            other.load_weights(path / saved.files[0])
            assert same(other.get_weights(), alone.weights())
        if step == changed.step:
            alone.optimizer.learning_rate.assign(0.05)
        alone.step()
    assert same(trained.weights(), alone.weights())


def test_a_schedule_computes_the_rate_itself(tmp_path: Path) -> None:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    with Hook(tmp_path / "run") as hook:
        with pytest.raises(ConfigError, match="has a learning rate schedule"):
            hook.tunable("lr", keras.optimizers.SGD(schedule))
        with pytest.raises(ConfigError, match="not supported by"):
            hook.tunable("clip", keras.optimizers.SGD(0.1))
