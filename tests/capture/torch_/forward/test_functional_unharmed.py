"""Capturing functions does not affect the training."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from torch.utils.flop_counter import FlopCounterMode

from tests.capture.torch_.forward.functional_calls import BOTH, Calls, step_on
from vinedresser.capture import Hook, open_run


@pytest.fixture(autouse=True)
def modes_are_left_as_they_were() -> Iterator[None]:
    assert torch._C._len_torch_function_stack() == 0
    yield
    assert torch._C._len_torch_function_stack() == 0


def train(path: Path | None, model: nn.Module, rows: Tensor, steps: int = 3) -> list[Tensor]:
    """Train with or without a hook; return what is left, with the generator's state."""
    torch.manual_seed(7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hook = None if path is None else Hook(path, collections=BOTH).watch(model, optimizer=optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
    if hook is not None:
        hook.close()
        assert hook.problems == []
    return [torch.get_rng_state(), *(parameter.detach() for parameter in model.parameters())]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


class Random(nn.Module):
    """Draws, branches on what it has computed, and makes views that are written to."""

    def __init__(self, wrapped: Callable[..., Tensor] | None = None) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.one, self.two = nn.Linear(3, 6), nn.Linear(6, 1)
        self._wrapped = wrapped

    def middle(self, y: Tensor) -> Tensor:
        y = F.dropout(F.rrelu(F.relu(y) * 1.0, training=True), 0.3) * 1.0
        y[:, 1:3].sigmoid_()
        return torch.tanh(y) if y.sum() > 0 else F.silu(y)

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x)
        y = self.middle(y) if self._wrapped is None else self._wrapped(self.middle, y)
        out: Tensor = self.two(y)
        return out


def reentrant(function: Callable[[Tensor], Tensor], y: Tensor) -> Tensor:
    return checkpoint(function, y, use_reentrant=True)  # type: ignore[no-any-return]


def not_reentrant(function: Callable[[Tensor], Tensor], y: Tensor) -> Tensor:
    return checkpoint(function, y, use_reentrant=False)  # type: ignore[no-any-return]


def selective(function: Callable[[Tensor], Tensor], y: Tensor) -> Tensor:
    """Save the results of all operations, and expect the same operations again."""

    def contexts() -> Any:
        return create_selective_checkpoint_contexts(lambda *_, **__: CheckpointPolicy.MUST_SAVE)

    def inner(y: Tensor) -> Tensor:
        return torch.tanh(F.gelu(y).mm(torch.ones(6, 6)))

    return checkpoint(inner, y, use_reentrant=False, context_fn=contexts)  # type: ignore[no-any-return]


@pytest.mark.parametrize("wrapped", [None, reentrant, not_reentrant, selective])
def test_the_training_is_bit_identical(
    wrapped: Callable[..., Tensor] | None, tmp_path: Path
) -> None:
    rows = torch.randn(8, 3)
    plain = train(None, Random(wrapped), rows)
    hooked = train(tmp_path / "run", Random(wrapped), rows)
    assert same(plain, hooked)
    names = open_run(tmp_path / "run").tensor_names(collection="outputs")
    assert ("outputs/Random.gelu()" if wrapped is selective else "outputs/Random.relu()") in names
    # Nothing from the recomputation.
    assert "outputs/Random.relu()#1" not in names


def test_user_modes_see_only_the_users_operations(tmp_path: Path) -> None:
    class Noting(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    counts, seen = [], []
    for hooked in (False, True):
        model = Random()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        hook = Hook(tmp_path / "run", collections=BOTH) if hooked else None
        if hook is not None:
            hook.watch(model, optimizer=optimizer)
        torch.manual_seed(0)
        rows = torch.randn(8, 3)
        with FlopCounterMode(display=False) as flops, Noting() as noting:
            value = model(rows).sum()
        value.backward()
        optimizer.step()
        counts.append(flops.get_total_flops())
        seen.append([name for name in noting.seen if name != "__get__"])
        if hook is not None:
            hook.close()
            assert hook.problems == []
    assert counts[0] == counts[1] > 0
    assert seen[0] == seen[1]


def test_a_default_device_does_not_affect_capture(tmp_path: Path) -> None:
    model = Calls(torch.relu)
    try:
        torch.set_default_device("meta")
        run, problems = step_on(model, tmp_path / "run", torch.ones(2, 3, device="cpu"))
    finally:
        torch.set_default_device(None)
    assert problems == []
    assert run.tensor("outputs/Calls.relu()").shape == (2, 4)


@pytest.mark.filterwarnings("ignore:.torch.jit.*is deprecated")
def test_with_torchscript(tmp_path: Path) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
            self.function = torch.jit.script(_scripted)

        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(self.function(self.scripted(x)))

    run, problems = step_on(Mixed(), tmp_path / "run", torch.randn(2, 3))
    assert problems == []
    # Code without Python cannot be captured.
    outputs = run.tensor_names(collection="outputs")
    assert set(outputs) == {"outputs/Mixed.gelu()", "outputs/Mixed"}


def _scripted(x: Tensor) -> Tensor:
    return torch.relu(x) + 1


def test_transforms_inside_a_model_are_left_alone(tmp_path: Path) -> None:
    class Slopes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

        def forward(self, x: Tensor) -> Tensor:
            slope = torch.func.vmap(torch.func.grad(lambda row: self.net(row).sigmoid().sum()))(x)
            out: Tensor = F.relu(slope) + self.net(x)
            return out

    rows = torch.randn(5, 3)
    plain, model = Slopes(), Slopes()
    model.load_state_dict(plain.state_dict())
    expected = train(None, plain, rows)
    assert same(expected, train(tmp_path / "run", model, rows))
    run = open_run(tmp_path / "run")
    assert run.tensor("outputs/net").shape == (5, 1)
    assert run.tensor("outputs/Slopes.relu()").shape == (5, 3)
    assert not [name for name in run.tensor_names() if "sigmoid" in name or "#" in name]


def test_a_model_inside_a_transform(tmp_path: Path) -> None:
    model = Calls(torch.relu)
    rows = torch.randn(4, 3)

    def loss(parameters: dict[str, Tensor], row: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(model, parameters, (row,))
        return found.sum()

    parameters: dict[str, Tensor] = dict(model.named_parameters())
    sensitivity = torch.func.vmap(torch.func.grad(loss), (None, 0))
    expected = sensitivity(parameters, rows)
    with Hook(tmp_path / "run", collections=BOTH) as hook:
        hook.watch(model)
        found = sensitivity(parameters, rows)
    assert hook.problems == []
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_an_error_passes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    def failing(y: Tensor) -> Tensor:
        return torch.relu(y) @ torch.ones(9, 9)

    model = Calls(failing)
    with Hook(tmp_path / "run", collections=BOTH) as hook:
        hook.watch(model)
        with pytest.raises(RuntimeError) as raised:
            model(torch.ones(2, 3))
        assert torch._C._len_torch_function_stack() == 0
        files = [Path(entry.path).name for entry in raised.traceback]
        assert "function_calls.py" not in files
        model.function = torch.relu
        model(torch.ones(2, 3))
    assert hook.problems == []


@pytest.mark.thorough
def test_nothing_keeps_the_activations_alive(tmp_path: Path) -> None:
    seen: list[weakref.ref[Tensor]] = []

    def noted(y: Tensor) -> Tensor:
        result = F.gelu(y)
        seen.extend([weakref.ref(y), weakref.ref(result)])
        return result

    model = Calls(noted)
    with Hook(tmp_path / "run", collections=BOTH) as hook:
        hook.watch(model)
        model(torch.ones(2, 3))
        gc.collect()
        assert [reference() for reference in seen] == [None, None]


def test_a_single_layer_uses_torchs_fast_path(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x = torch.randn(3, 5, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=BOTH) as hook:
        hook.watch(model, optimizer=optimizer)
        assert copy.deepcopy(model)._compiled_call_impl is None
        model(x).sum().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad(), torch.profiler.profile() as profile:
            model(x)
    assert "aten::_transformer_encoder_layer_fwd" in {
        average.key for average in profile.key_averages()
    }
    run = open_run(tmp_path / "run")
    assert run.tensor("outputs/TransformerEncoderLayer").steps("train").tolist() == [0]
    assert run.tensor("inputs/linear1").steps("train").tolist() == [0]
    assert model._compiled_call_impl is None


def test_an_evaluation_with_torchs_fast_path_is_bit_identical(tmp_path: Path) -> None:
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(nn.Linear(8, 8), nn.TransformerEncoder(layer, 2)).eval()
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        expected = model(x)
    said = {}
    for fast in (True, False):
        path = tmp_path / str(fast)
        try:
            torch.backends.mha.set_fastpath_enabled(fast)
            with Hook(path, collections=BOTH) as hook, torch.no_grad():
                hook.watch(model)
                found = model(x)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
        said[fast] = hook.problems
        assert torch.equal(found, expected) or not fast
        names = open_run(path).tensor_names()
        assert "outputs/0" in names
        assert ("outputs/1.layers.0.linear1" in names) is not fast
    assert said[False] == []
    (problem,) = said[True]
    assert "set_fastpath_enabled(False)" in problem
