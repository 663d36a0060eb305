"""Names are stable and unique for all outputs and wrappers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.capture.hook.trainings import EVERYTHING
from vinedresser.capture import Hook, open_run
from vinedresser.store.reading.reader import Run


def run_of(model: nn.Module, tmp_path: Path, forward: Callable[[], Tensor]) -> Run:
    """Take one optimizer step on what forward returns, and return the run."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=EVERYTHING) as hook:
        hook.watch(model, optimizer=optimizer)
        forward().sum().backward()
        optimizer.step()
    assert hook.problems == []
    return open_run(tmp_path / "run")


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


@dataclass
class Answer:
    hidden: Tensor
    note: str = "not a tensor"


class Returns(nn.Module):
    """Applies a function to its output."""

    def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self._wrap = wrap

    def forward(self, x: Tensor) -> Any:
        return self._wrap(self.inner(x))


@pytest.mark.parametrize(
    ("wrap", "suffixes"),
    [
        (lambda y: y, [""]),
        (lambda y: (y, y + 1), ["[0]", "[1]"]),
        (lambda y: [y, None, "text"], ["[0]"]),
        (lambda y: {"hidden": y, "size": 3}, ["[hidden]"]),
        (lambda y: OrderedDict(a=(y, y * 2)), ["[a][0]", "[a][1]"]),
        (lambda y: Pair(y, y * 2), ["[0]", "[1]"]),
        (Answer, ["[hidden]"]),
        (lambda y: None, []),
    ],
    ids=["tensor", "tuple", "list", "dict", "nested", "namedtuple", "dataclass", "nothing"],
)
def test_outputs_of_every_form(
    wrap: Callable[[Tensor], Any], suffixes: list[str], tmp_path: Path
) -> None:
    model = Returns(wrap)

    def forward() -> Tensor:
        model(torch.ones(1, 2))
        return model.inner.weight

    names = run_of(model, tmp_path, forward).tensor_names(collection="outputs")
    assert set(names) == {"outputs/inner", *(f"outputs/Returns{suffix}" for suffix in suffixes)}


def test_lstm_outputs(tmp_path: Path) -> None:
    model = nn.Sequential(OrderedDict(lstm=nn.LSTM(3, 4)))
    run = run_of(model, tmp_path, lambda: model(torch.ones(5, 1, 3))[0])
    assert set(run.tensor_names(collection="outputs")) == {
        f"outputs/{module}{suffix}"
        for module in ("lstm", "Sequential")
        for suffix in ("[0]", "[1][0]", "[1][1]")
    }
    assert "biases/lstm.bias_hh_l0" in run.tensor_names(collection="biases")


def test_calls_of_a_shared_module_are_numbered(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)
    model = nn.Sequential(OrderedDict(a=layer, relu=nn.ReLU(), b=layer))
    run = run_of(model, tmp_path, lambda: model(torch.ones(1, 2)))
    assert set(run.tensor_names()) == {
        "outputs/a", "outputs/relu", "outputs/a#1", "outputs/Sequential",
        "weights/a.weight", "biases/a.bias", "gradients/a.weight", "gradients/a.bias",
    }  # fmt: skip


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(7, 3)
            self.decode = nn.Linear(3, 7, bias=False)
            self.decode.weight = self.embed.weight

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.decode(self.embed(x))
            return out

    model = Tied()
    run = run_of(model, tmp_path, lambda: model(torch.tensor([1, 2])))
    assert run.tensor_names(collection="weights") == ["weights/embed.weight"]
    assert run.tensor_names(collection="gradients") == ["gradients/embed.weight"]


def test_sparse_gradients_are_stored_dense(tmp_path: Path) -> None:
    model = nn.Embedding(5, 2, sparse=True)
    run = run_of(model, tmp_path, lambda: model(torch.tensor([1, 1, 3])))
    expected = [[0, 0], [2, 2], [0, 0], [1, 1], [0, 0]]
    np.testing.assert_array_equal(run.tensor("gradients/weight").value(0), expected)
    assert run.tensor("gradients/weight").reduction("zero_share").values.tolist() == [0.6]


def test_integer_outputs_have_reductions(tmp_path: Path) -> None:
    model = Returns(lambda y: (y, y.argmax(1), y > 0))
    run = run_of(model, tmp_path, lambda: model(torch.ones(3, 2))[0])
    assert run.tensor("outputs/Returns[1]").dtype == np.int64
    assert run.tensor("outputs/Returns[2]").dtype == np.bool_
    for index in (1, 2):
        view = run.tensor(f"outputs/Returns[{index}]")
        expected = np.std(view.value(0).astype(np.float64))
        assert view.reduction("std").values.tolist() == [expected]


@pytest.mark.thorough
def test_wrappers_leave_no_trace_in_names(tmp_path: Path) -> None:
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    inner[1] = torch.compile(inner[1], backend="eager")  # type: ignore[assignment]
    model = nn.DataParallel(inner)
    run = run_of(model, tmp_path, lambda: model(torch.ones(1, 2)))
    assert set(run.tensor_names()) == {
        "outputs/0", "outputs/1", "outputs/Sequential",
        "weights/0.weight", "biases/0.bias", "gradients/0.weight", "gradients/0.bias",
    }  # fmt: skip


def test_a_lazy_layer_is_captured_once_initialized(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LazyLinear(2))
    run = run_of(model, tmp_path, lambda: model(torch.ones(1, 3)))
    assert run.tensor("weights/0.weight").shape == (2, 3)


def test_a_tensor_under_two_names_is_copied_once(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 3)), nn.Identity(), nn.Flatten(0))
    with Hook(tmp_path / "run", collections=EVERYTHING) as hook:
        hook.watch(model)
        with hook.mode("eval"):
            model(torch.ones(1, 2))
            recording = hook._session.recorder.current()
            assert recording is not None
            tensors = recording.tensors
            linear = tensors["outputs/0.0"]
            assert tensors["outputs/0"] is linear
            assert tensors["outputs/1"] is linear
            # The same memory, but another shape.
            assert tensors["outputs/2"] is not linear
            assert tensors["outputs/Sequential"] is tensors["outputs/2"]
