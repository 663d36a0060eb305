"""Inputs of modules are their arguments, with unique names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.store.reading.reader import Run

ALWAYS = SaveConfig(every=1)
BOTH = {"inputs": ALWAYS, "outputs": ALWAYS}


def run_of(model: nn.Module, tmp_path: Path, call: Callable[[], Any]) -> Run:
    """Capture one evaluation without problems."""
    with Hook(tmp_path / "run", collections=BOTH) as hook:
        hook.watch(model)
        with hook.mode("eval"), torch.no_grad():
            call()
    assert hook.problems == []
    return open_run(tmp_path / "run")


def value(run: Run, name: str) -> Any:
    return run.tensor(name).value(0, mode="eval")


class Takes(nn.Module):
    """Calls a submodule in many ways."""

    def __init__(self, call: Callable[[nn.Module], Any]) -> None:
        super().__init__()
        self.part = Anything()
        self._call = call

    def forward(self) -> None:
        self._call(self.part)


class Anything(nn.Module):
    def forward(self, *args: Any, **kwargs: Any) -> None:
        pass


ONE, TWO = torch.tensor([1.0, 2.0]), torch.tensor([3, 4])

WAYS: dict[str, tuple[Callable[[nn.Module], Any], dict[str, Tensor]]] = {
    "one": (lambda part: part(ONE), {"": ONE}),
    "one_and_a_number": (lambda part: part(ONE, 3, None), {"": ONE}),
    "keyword": (lambda part: part(x=ONE), {"[x]": ONE}),
    "both": (lambda part: part(ONE, mask=TWO), {"": ONE, "[mask]": TWO}),
    "two": (lambda part: part(ONE, TWO), {"[0]": ONE, "[1]": TWO}),
    "second": (lambda part: part(None, TWO), {"[1]": TWO}),
    "tuple": (lambda part: part((ONE, [TWO])), {"[0]": ONE, "[1][0]": TWO}),
    "state": (
        lambda part: part(ONE, (TWO, ONE + 1)),
        {"[0]": ONE, "[1][0]": TWO, "[1][1]": ONE + 1},
    ),
    "mapping": (
        lambda part: part({"ids": TWO}, options={"deep": (ONE,)}),
        {"[ids]": TWO, "[options][deep][0]": ONE},
    ),
    "nothing": (lambda part: part(), {}),
}


@pytest.mark.parametrize("way", WAYS)
def test_names(way: str, tmp_path: Path) -> None:
    call, expected = WAYS[way]
    model = Takes(call)
    run = run_of(model, tmp_path, model)
    assert set(run.tensor_names()) == {f"inputs/part{suffix}" for suffix in expected}
    for suffix, tensor in expected.items():
        np.testing.assert_array_equal(value(run, f"inputs/part{suffix}"), tensor.numpy())


def test_packed_sequences_are_their_data(tmp_path: Path) -> None:
    class Packing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(3, 4, batch_first=True)

        def forward(self, x: Tensor) -> Any:
            return self.lstm(
                pack_padded_sequence(x, [1, 3], batch_first=True, enforce_sorted=False)
            )

    model, x = Packing(), torch.arange(18.0).reshape(2, 3, 3)
    run = run_of(model, tmp_path, lambda: model(x))
    rows = torch.stack([x[1, 0], x[0, 0], x[1, 1], x[1, 2]])
    np.testing.assert_array_equal(value(run, "inputs/lstm"), rows)
    assert value(run, "inputs/lstm[batch_sizes]").tolist() == [2, 1, 1]
    # The second row's states are those of the row alone.
    (alone, _), _ = model.lstm(x[1:]), None
    found = value(run, "outputs/lstm[0]")[[0, 2, 3]]
    np.testing.assert_allclose(found, alone[0].detach(), rtol=1e-5)
    assert run.tensor("outputs/lstm[1][0]").shape == (1, 2, 4)


def test_calls_of_one_module_are_numbered(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    x = torch.randn(3, 2)
    run = run_of(model, tmp_path, lambda: model(x))
    with torch.no_grad():
        hidden = layer(x).relu()
    np.testing.assert_array_equal(value(run, "inputs/0"), x)
    np.testing.assert_array_equal(value(run, "inputs/0#1"), hidden)
    np.testing.assert_array_equal(value(run, "outputs/0#1"), layer(hidden).detach())


def test_a_module_that_calls_itself(tmp_path: Path) -> None:
    class Again(nn.Module):
        def forward(self, x: Tensor, depth: int = 2) -> Tensor:
            return self(x + 1, depth - 1) if depth else x

    model = nn.Sequential(Again())
    run = run_of(model, tmp_path, lambda: model(torch.zeros(1)))
    for call, name in enumerate(("0", "0#1", "0#2")):
        assert value(run, f"inputs/{name}").tolist() == [call]
        assert value(run, f"outputs/{name}").tolist() == [2.0]


def test_a_module_whose_error_is_caught(tmp_path: Path) -> None:
    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fails, self.works = nn.Linear(5, 2), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            try:
                y: Tensor = self.fails(x)
            except RuntimeError:
                y = self.works(x)
            return torch.relu(y)

    model = Careful()
    run = run_of(model, tmp_path, lambda: model(torch.ones(1, 2)))
    assert {"inputs/fails", "outputs/works", "inputs/Careful.relu()", "outputs/Careful"} <= set(
        run.tensor_names()
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_indices_of_embeddings(dtype: torch.dtype, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(7, 3), nn.Flatten())
    tokens = torch.tensor([[1, 6], [0, 2]], dtype=dtype)
    run = run_of(model, tmp_path, lambda: model(tokens))
    np.testing.assert_array_equal(value(run, "inputs/0"), tokens)
    assert run.tensor("inputs/0").dtype == np.dtype(str(dtype).removeprefix("torch."))


def test_inputs_and_outputs_of_an_in_place_layer(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Hardtanh(inplace=True), nn.Threshold(0.0, 9.0, inplace=True))
    x = torch.tensor([-3.0, -0.5, 0.5, 3.0])
    run = run_of(model, tmp_path, lambda: model(x))
    expected = {
        "inputs/Sequential": [-3.0, -0.5, 0.5, 3.0],
        "inputs/0": [-3.0, -0.5, 0.5, 3.0],
        "outputs/0": [-1.0, -0.5, 0.5, 1.0],
        "inputs/1": [-1.0, -0.5, 0.5, 1.0],
        "outputs/1": [9.0, 9.0, 0.5, 1.0],
        "outputs/Sequential": [9.0, 9.0, 0.5, 1.0],
    }
    assert {name: value(run, name).tolist() for name in run.tensor_names()} == expected


def test_a_tensor_between_two_modules_is_copied_once(tmp_path: Path) -> None:
    class Scales(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(2.0)

    model = nn.Sequential(nn.Linear(2, 2), nn.Identity(), Scales(), nn.Dropout(0.0))
    with Hook(tmp_path / "run", collections=BOTH) as hook:
        hook.watch(model)
        with hook.mode("eval"), torch.no_grad():
            model(torch.ones(3, 2))
            recording = hook._session.recorder.current()
            assert recording is not None
            found = {name: id(host) for name, host in recording.tensors.items()}
    first, scaled = found["outputs/0"], found["outputs/2"]
    assert found["inputs/1"] == found["outputs/1"] == found["inputs/2"] == first
    assert scaled != first
    assert found["inputs/3"] == scaled
    assert found["inputs/0"] == found["inputs/Sequential"]
    assert len(set(found.values())) == len({found["inputs/0"], first, scaled, found["outputs/3"]})


def test_changes_by_user_hooks_are_captured(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2, bias=False)
    nn.init.eye_(layer.weight)
    layer.register_forward_pre_hook(lambda _, args: (args[0] + 1,))
    layer.register_forward_hook(lambda _, args, output: output * 10)
    model = nn.Sequential(layer)
    run = run_of(model, tmp_path, lambda: model(torch.ones(1, 2)))
    assert value(run, "inputs/0").tolist() == [[2.0, 2.0]]
    assert value(run, "outputs/0").tolist() == [[20.0, 20.0]]


def test_only_requested_modules_get_hooks(tmp_path: Path) -> None:
    seen = []

    class Looking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append((len(self._forward_pre_hooks), torch._C._len_torch_function_stack()))
            return x * 1.0

    model = nn.Sequential(Looking(), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    collections = {"inputs": SaveConfig(every=2), "weights": ALWAYS, "buffers": ALWAYS}
    with Hook(tmp_path / "run", collections=collections).watch(model, optimizer=optimizer):
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert seen == [(1, 1), (0, 0), (1, 1)]
