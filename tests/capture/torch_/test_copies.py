"""A watched model is copied, averaged, pickled and exported like an unwatched one."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from vinedresser.capture import Hook, SaveConfig, open_run

ALL = dict.fromkeys(("losses", "weights", "inputs", "outputs", "gradients"), SaveConfig(every=1))


def net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 1))


def saved(model: nn.Module) -> bytes:
    file = io.BytesIO()
    torch.save(model, file)
    return file.getvalue()


def train(hook: Hook | None, between: Callable[[nn.Module], Any]) -> dict[str, Tensor]:
    """Train, and do something with the model at every moment of every step."""
    model, loss = net(), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    if hook is not None:
        hook.watch(model, loss, optimizer)
    for step in range(3):
        between(model)
        value = loss(model(torch.full((8, 2), 1.0 + step)), torch.zeros(8, 1))
        between(model)
        optimizer.zero_grad()
        value.backward()
        between(model)
        optimizer.step()
        between(model)
    return model.state_dict()


def evaluate_a_copy(model: nn.Module) -> None:
    twin = copy.deepcopy(model)
    twin.eval()
    with torch.no_grad():
        twin(torch.zeros(5, 2))
    twin.train()
    twin(torch.zeros(5, 2)).sum().backward()


def load_a_pickle(model: nn.Module) -> None:
    twin = torch.load(io.BytesIO(saved(model)), weights_only=False)
    assert torch.equal(twin[0].weight, model[0].weight)  # type: ignore[index]
    twin(torch.zeros(5, 2)).sum().backward()


def average(model: nn.Module) -> None:
    averaged = AveragedModel(model)
    averaged.update_parameters(model)
    averaged(torch.zeros(5, 2))


def export(model: nn.Module) -> None:
    torch.export.export(copy.deepcopy(model).eval(), (torch.zeros(5, 2),))


def trace(model: nn.Module) -> None:
    training = model.training
    torch.jit.trace(model.eval(), torch.zeros(5, 2), check_trace=False)
    model.train(training)


def script(model: nn.Module) -> None:
    """Compile the model, and a model that contains it."""
    x = torch.ones(5, 2)
    model.eval()
    for one in (torch.jit.script(model), torch.jit.script(nn.Sequential(model))):
        assert torch.equal(one(x), model.forward(x))
    model.train()


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.torch.jit.*is deprecated")
@pytest.mark.parametrize(
    "between", [evaluate_a_copy, load_a_pickle, average, export, trace, script]
)
def test_processing_copies_does_not_affect_the_training(
    between: Callable[[nn.Module], Any], tmp_path: Path
) -> None:
    plain = train(None, between)
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hooked = train(hook, between)
    assert hook.problems == []
    for name, value in plain.items():
        assert torch.equal(hooked[name], value), name
    run = open_run(tmp_path / "run")
    assert run.steps(mode=None).tolist() == [0, 1, 2]
    for step in range(3):
        # The training's batch of 8 rows.
        expected = np.full((8, 2), 1.0 + step)
        np.testing.assert_array_equal(run.tensor("inputs/0").value(step), expected)
        assert run.tensor("outputs/3").value(step).shape == (8, 1)


@pytest.mark.filterwarnings("ignore:.torch.jit.*is deprecated")
@pytest.mark.parametrize(
    "model",
    [nn.MSELoss(), nn.TransformerEncoderLayer(4, 2, batch_first=True)],
    ids=["loss", "fast"],
)
def test_torchscript_compiles_a_watched_model_with_the_users_hooks(
    model: nn.Module, tmp_path: Path
) -> None:
    loss = model if isinstance(model, nn.MSELoss) else None
    with Hook(tmp_path / "run") as hook:
        hook.watch(nn.Linear(2, 2) if loss else model, loss=loss)
        before = {name: dict(getattr(model, name)) for name in ("_forward_hooks", "_modules")}
        torch.jit.script(model)
        assert {name: dict(getattr(model, name)) for name in before} == before
        model.register_forward_hook(lambda *_: None)
        # Other hooks are rejected as before.
        with pytest.raises(RuntimeError):
            torch.jit.script(model)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.torch.jit.*is deprecated")
def test_what_is_saved_holds_nothing_of_the_hook(tmp_path: Path) -> None:
    def saves(hook: Hook | None) -> list[bytes]:
        files: list[bytes] = []

        def save(model: nn.Module) -> None:
            training = model.training
            traced = torch.jit.trace(model.eval(), torch.zeros(5, 2))
            model.train(training)
            exported = torch.export.export(model, (torch.zeros(5, 2),))
            files.append(saved(model) + saved(copy.deepcopy(model)) + saved(copy.copy(model)))
            files.append(f"{traced.code} {exported.graph_module.code}".encode())

        train(hook, save)
        return files

    with Hook(tmp_path / "run", collections=ALL) as hook:
        assert saves(hook) == saves(None)
    assert hook.problems == []


def test_saving_keeps_the_hooks_of_the_user(tmp_path: Path) -> None:
    model, loss = net(), nn.MSELoss()
    for one in (model, loss):
        one.register_forward_hook(print, with_kwargs=True, always_call=True)
        one.register_forward_pre_hook(print)
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hook.watch(model, loss)
        both = saved(model), saved(loss)
        assert len(model._forward_pre_hooks) == 2
    # Keys of hooks are counted over the whole process.
    assert both == (saved(model), saved(loss))


class Distributed(nn.Linear):
    """A module that copies its attributes itself, like torch's wrapper of data parallelism."""

    def __getstate__(self) -> dict[str, Any]:
        return copy.copy(self.__dict__)


def test_a_model_with_its_own_state_is_saved_without_the_hook(tmp_path: Path) -> None:
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hook.watch(model := Distributed(2, 1))
        model(torch.zeros(5, 2))
        assert not copy.deepcopy(model)._forward_pre_hooks
        with torch.serialization.safe_globals([Distributed]):
            torch.load(io.BytesIO(saved(model)), weights_only=True)
