"""A running training answers to the batch of a snapshot, and continues as if it had not."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.rules.actions.test_trainer import answered, ask
from vinedresser.capture import Hook, SnapshotSettings
from vinedresser.capture.live.settings import LiveSettings
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ControlRecord, read_journal

CONTROL = LiveSettings(control=True)
FIRST = SnapshotSettings(every=1000)


class Training:
    """A training with batch normalization, dropout and momentum."""

    def __init__(self, rate: float, inputs: int = 4) -> None:
        torch.manual_seed(0)
        layers = (nn.Linear(inputs, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 1))
        self.model, self.loss = nn.Sequential(*layers), nn.MSELoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9)
        self.inputs, self.steps, self.norms = inputs, 0, list[float]()

    def step(self) -> None:
        self.optimizer.zero_grad()
        batch = torch.randn(16, self.inputs), torch.randn(16, 1)
        self.loss(self.model(batch[0]), batch[1]).backward()
        gradients = [
            parameter.grad.norm()
            for parameter in self.model.parameters()
            if parameter.grad is not None
        ]
        self.norms.append(float(torch.stack(gradients).norm()))
        self.optimizer.step()
        self.steps += 1

    def until(self, condition: Callable[[], object]) -> None:
        """Train until a condition holds, and three steps more."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            self.step()
            # The duration of a real step, so that the snapshot of the first is still kept.
            time.sleep(0.005)
        for _ in range(3):
            self.step()

    def state(self) -> list[bytes]:
        """Return the bytes of weights, buffers, momentum and the random state."""
        momentum = [one["momentum_buffer"] for one in self.optimizer.state.values()]
        tensors = [*self.model.state_dict().values(), *momentum, torch.get_rng_state()]
        return [tensor.numpy().tobytes() for tensor in tensors]


def injected(
    run: Path,
    training: Training,
    snapshot: Path,
    loss: nn.Module | None = None,
    *,
    control: bool = True,
) -> str:
    """Give a batch to a training; return the answer or why it is refused."""
    live = CONTROL if control else None
    with Hook(run, live=live, snapshots=FIRST) as hook:
        hook.watch(training.model, loss, training.optimizer)
        look = ask(run, "inject", snapshot=str(snapshot))
        training.until(look)
    answer = answered(look)
    return answer.told or answer.refused


@pytest.mark.thorough
def test_the_answer_is_that_of_the_recorded_step_if_the_weights_are_the_same(
    tmp_path: Path,
) -> None:
    run, training = tmp_path / "run", Training(rate=0.0)
    told = injected(run, training, run / "snapshots" / "step-0", loss=training.loss)
    found = re.fullmatch(r"loss (\S+) \(in the snapshot (\S+)\), gradient norm (\S+)", told)
    assert found is not None, told
    assert found[1] == found[2]
    assert float(found[3]) == pytest.approx(training.norms[0], rel=1e-5)
    faults: list[str] = []
    (noted,) = read_journal(LocalStorage(run), ControlRecord, faults)
    assert (noted.words, faults) == (f"injected batch: {told}", [])


@pytest.mark.thorough
def test_the_training_stays_the_same_bit_for_bit(tmp_path: Path) -> None:
    first = tmp_path / "first"
    other = Training(0.05)
    injected(first, other, first / "snapshots" / "step-0", loss=other.loss)
    watched = Training(0.05)
    run = tmp_path / "run"
    assert "gradient norm" in injected(
        run, watched, first / "snapshots" / "step-0", loss=watched.loss
    )
    state = watched.state()
    plain = Training(0.05)
    for _ in range(watched.steps):
        plain.step()
    assert plain.state() == state


@pytest.mark.slow
def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    run, training = tmp_path / "run", Training(0.05)
    place = run / "snapshots" / "step-0"
    told = injected(run, training, place, loss=training.loss, control=False)
    assert "cannot be given a batch: its script declares neither" in told
    assert "how the training computes its loss" in injected(tmp_path / "b", Training(0.05), place)
    wide = Training(0.05, inputs=5)
    assert "does not fit the training: mat1 and mat2 shapes" in injected(
        tmp_path / "c", wide, place, loss=wide.loss
    )
    missing = Training(0.05)
    assert "step-7" in injected(
        tmp_path / "d", missing, run / "snapshots" / "step-7", loss=missing.loss
    )


@pytest.mark.thorough
def test_the_command_prints_the_answer(tmp_path: Path) -> None:
    training, run = Training(0.0), tmp_path / "run"
    with Hook(run, live=CONTROL, snapshots=FIRST) as hook:
        hook.watch(training.model, training.loss, training.optimizer)
        training.step()
        command = [sys.executable, "-m", "vinedresser", "replay", "run/snapshots/step-0"]
        process = subprocess.Popen(
            [*command, "--inject", "run"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        training.until(lambda: process.poll() is not None)
    output = process.communicate()[0]
    assert process.returncode == 0
    pattern = r"run: injected batch: loss (\S+) \(in the snapshot \1\), gradient norm \S+ after \d+"
    assert re.match(pattern, output), output
