"""An optimizer's step ends a train step in any mode of the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, Run, SaveConfig, open_run
from vinedresser.store.step_record import Mode

SAVES = {
    "outputs": SaveConfig(every=1),
    "gradients": SaveConfig(every=1, reductions=("l2",)),
    "inputs": SaveConfig(every=1, modes=("eval",)),
    "state": SaveConfig(every=1, modes=("train", "eval")),
    "timing": SaveConfig(every=1),
}


class Loop:
    """A network with dropout, its loss, its optimizer, and what was computed."""

    def __init__(self, path: Path | None, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        self.loss = nn.MSELoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.hook = None if path is None else Hook(path, collections=SAVES)
        if self.hook is not None:
            self.hook.watch(self.model, self.loss, self.optimizer)

    def value(self, rows: int = 5) -> Tensor:
        value: Tensor = self.loss(self.model(torch.randn(rows, 3)), torch.zeros(rows, 1))
        return value

    def step(self, micro: int = 1) -> list[float]:
        self.optimizer.zero_grad()
        values = []
        for _ in range(micro):
            value = self.value()
            value.backward()
            values.append(value.item())
        self.optimizer.step()
        return values

    def evaluate(self, *, graded: bool = False, batches: int = 2) -> list[float]:
        with torch.set_grad_enabled(graded):
            return [self.value(7).item() for _ in range(batches)]

    def close(self, path: Path) -> Run:
        assert self.hook is not None
        self.hook.close()
        assert self.hook.problems == []
        return open_run(path)


def losses(run: Run, mode: Mode) -> list[float]:
    columns = run.scalars("losses", mode=mode)
    found: list[float] = columns["losses/MSELoss"].values.tolist() if columns else []
    return found


def training(run: Run, mode: Mode) -> list[float]:
    found: list[float] = run.scalars("state", mode=mode)["state/training"].values.tolist()
    return found


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize("micro", [1, 3])
def test_training_in_eval_mode_is_training(micro: int, tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run")
    loop.model.eval()
    values = [loop.step(micro) for _ in range(4)]
    run = loop.close(tmp_path / "run")
    assert losses(run, "train") == pytest.approx([mean(value) for value in values])
    assert training(run, "train") == [0.0] * 4
    assert not run.steps("eval").size
    for step in range(4):
        assert run.tensor("outputs/Sequential").value(step).shape == (5, 1)
        assert run.tensor("gradients/0.weight").reduction("l2").values[step] > 0
    # Tensors due in evaluations only were captured while it might have been one.
    assert not [name for name in run.tensor_names() if name.startswith("inputs/")]


def test_an_evaluation_between_steps_is_recognized(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run")
    loop.step()
    loop.model.eval()
    first = loop.evaluate()
    # The model stays in eval mode.
    second = loop.step()
    third = loop.evaluate()
    fourth = loop.step()
    loop.model.train()
    fifth = loop.step()
    run = loop.close(tmp_path / "run")
    assert losses(run, "eval") == pytest.approx([mean(first), mean(third)])
    assert losses(run, "train")[1:] == pytest.approx([*second, *fourth, *fifth])
    assert training(run, "train") == [1.0, 0.0, 0.0, 1.0]
    assert training(run, "eval") == [0.0, 0.0]


def test_an_evaluation_with_gradients_is_recognized(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run")
    loop.step()
    loop.model.eval()
    values = loop.evaluate(graded=True)
    loop.model.train()
    loop.step()
    loop.model.eval()
    last = loop.evaluate(graded=True)
    run = loop.close(tmp_path / "run")
    assert losses(run, "eval") == pytest.approx([mean(values), mean(last)])
    assert run.steps("train").tolist() == [0, 1]
    view = run.tensor("inputs/Sequential")
    assert view.value(1, mode="eval").shape == (7, 3)
    assert training(run, "eval") == [0.0, 0.0]


def test_an_evaluation_in_training_mode_is_recognized(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run")
    loop.step()
    values = loop.evaluate(batches=3)
    after = loop.step()
    run = loop.close(tmp_path / "run")
    assert losses(run, "eval") == pytest.approx([mean(values)])
    assert training(run, "eval") == [1.0]
    assert losses(run, "train")[1:] == pytest.approx(after)


def test_a_forward_without_a_loss_is_not_an_evaluation(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run")
    for _ in range(3):
        with torch.no_grad():
            target = loop.model(torch.randn(4, 3))
        loop.loss(loop.model(torch.randn(4, 3)), target).backward()
        loop.optimizer.step()
    run = loop.close(tmp_path / "run")
    assert not run.steps("eval").size
    assert training(run, "train") == [1.0] * 3


def test_two_models_in_eval_mode(tmp_path: Path) -> None:
    models = {name: nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)) for name in ("one", "two")}
    optimizers = {name: torch.optim.SGD(one.parameters(), lr=0.1) for name, one in models.items()}
    with Hook(tmp_path / "run", collections=SAVES) as hook:
        for name, model in models.items():
            hook.watch(model.eval(), optimizer=optimizers[name], name=name)
        for _ in range(3):
            value = models["two"](models["one"](torch.randn(4, 3))).square().mean()
            value.backward()
            for optimizer in optimizers.values():
                optimizer.step()
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == [0, 1, 2]
    assert not run.steps("eval").size
    for name in models:
        column = run.scalars("state")[f"state/{name}.training"]
        assert column.values.tolist() == [0.0] * 3
        assert run.tensor(f"outputs/{name}").value(0).shape == (4, 3)


def test_a_teacher_of_a_model_that_is_trained_in_eval_mode(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run")
    teacher = nn.Sequential(nn.Linear(3, 1), nn.Dropout(0.5)).eval()
    assert loop.hook is not None
    loop.hook.watch(teacher, name="teacher")
    loop.model.eval()
    for _ in range(3):
        x = torch.randn(4, 3)
        with torch.no_grad():
            target = teacher(x)
        loop.loss(loop.model(x), target).backward()
        loop.optimizer.step()
    run = loop.close(tmp_path / "run")
    assert run.steps("train").tolist() == [0, 1, 2]
    # The first step could not be recognized yet.
    assert run.tensor("outputs/teacher").value(1).shape == (4, 1)


def _eval_mode(loop: Loop) -> None:
    loop.model.eval()
    for _ in range(3):
        loop.step(2)
        loop.evaluate()


def _train_mode(loop: Loop) -> None:
    for _ in range(3):
        loop.step()
        loop.evaluate()
        loop.model.eval()
        loop.evaluate(graded=True)
        loop.model.train()


@pytest.mark.parametrize("run", [_eval_mode, _train_mode])
def test_the_training_is_the_same_bit_for_bit(run: Callable[[Loop], None], tmp_path: Path) -> None:
    hooked, plain = Loop(tmp_path / "run"), Loop(None)
    for loop in (hooked, plain):
        torch.manual_seed(7)
        run(loop)
    hooked.close(tmp_path / "run")
    for ours, theirs in zip(hooked.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
