"""Compiled models are captured too, and stay compiled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, SaveConfig, open_run


class Counting:
    """A backend that runs graphs as they are, and counts how many it was given."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        self.graphs += 1
        return graph


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Part(nn.Module):
    """A part of a model that is compiled by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()  # type: ignore[no-any-return]


def small_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def compile_model(model: nn.Module, backend: Counting) -> nn.Module:
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    assert isinstance(compiled, nn.Module)
    return compiled


def fit(called: nn.Module, watched: nn.Module, path: Path, steps: int) -> tuple[Hook, list[float]]:
    """Train the called model, watch the watched one, save at every second step."""
    optimizer, loss = torch.optim.SGD(called.parameters(), lr=0.1), nn.MSELoss()
    collections = dict.fromkeys(("outputs", "gradients"), SaveConfig(every=2, start=1))
    hook = Hook(path, collections=collections).watch(watched, loss, optimizer)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(called(torch.ones(2, 3)), torch.zeros(2, 1))
        value.backward()
        optimizer.step()
        losses.append(value.item())
    hook.close()
    return hook, losses


def test_outputs_of_a_compiled_model(tmp_path: Path) -> None:
    plain = small_model()
    backend = Counting()
    compiled = compile_model(small_model(), backend)
    compiled.load_state_dict({f"_orig_mod.{k}": v for k, v in plain.state_dict().items()})
    _, expected = fit(plain, plain, tmp_path / "plain", 6)
    hook, losses = fit(compiled, compiled, tmp_path / "compiled", 6)
    assert losses == expected
    assert hook.problems == []
    # Once compiled, it stays so, through steps that are saved and steps that are not.
    assert backend.graphs == 1
    runs = [open_run(tmp_path / name) for name in ("plain", "compiled")]
    assert runs[0].tensor_names() == runs[1].tensor_names()
    for name in runs[0].tensor_names():
        one, other = (run.tensor(name) for run in runs)
        assert one.steps().tolist() == other.steps().tolist() == [1, 3, 5]
        np.testing.assert_array_equal(one.value(3), other.value(3), err_msg=name)


def test_a_compiled_part(tmp_path: Path) -> None:
    backend = Counting()
    model = nn.Sequential(Part(), nn.Linear(4, 1))
    model[0].compile(backend=backend)
    hook, _ = fit(model, model, tmp_path / "run", 4)
    assert hook.problems == []
    assert backend.graphs == 1
    run = open_run(tmp_path / "run")
    for name in ("outputs/0.linear", "outputs/0", "outputs/1", "outputs/Sequential"):
        assert run.tensor(name).steps().tolist() == [1, 3]


def test_a_model_that_is_watched_from_inside_says_what_is_not_captured(tmp_path: Path) -> None:
    backend = Counting()
    model = small_model()
    called = compile_model(model, backend)
    hook, losses = fit(called, model, tmp_path / "run", 4)
    assert backend.graphs == 1
    (problem,) = hook.problems
    assert "watch the very object that the training calls" in problem
    run = open_run(tmp_path / "run")
    assert not run.tensor_names(collection="outputs")
    assert run.tensor("gradients/0.weight").steps().tolist() == [1, 3]
    assert run.scalars("losses")["losses/MSELoss"].values.tolist() == losses
