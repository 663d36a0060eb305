"""If only activations are due, few modules get hooks, and none is missed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from vinedresser.capture import Collection, Hook, SaveConfig, open_run

L2 = SaveConfig(every=1, reductions=("l2", "zero_share"))
FEW = {"activations": L2, "model_inputs": L2}
# Requests the same by a regex, which must be searched in all names.
ALL = FEW | {"none": Collection(regex="^outputs/never$", save=L2)}


class Block(nn.Module):
    """Calls its activation as a module, as a function, and in a custom module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True))
        self.gate = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x) * self.gate(x)
        y = functional.gelu(self.inner(y))
        return y.tanh_() + x


class Doubled(nn.ReLU):
    """One of torch's activations, with another function inside."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.sigmoid(x)


class Linear(nn.Linear):
    """A subclass that calls an activation function."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(super().forward(x))


def simple() -> nn.Module:
    shared = nn.ReLU()
    return nn.Sequential(nn.Linear(4, 4), shared, nn.Dropout(0.1), nn.Linear(4, 4), shared)


def blocks() -> nn.Module:
    return nn.Sequential(Block(), Block(), nn.Softmax(dim=1))


def derived() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), Doubled(), Linear(4, 4))


def with_a_hook_of_the_users() -> nn.Module:
    model = simple()
    first = model.get_submodule("0")
    first.register_forward_hook(lambda _, __, output: torch.relu(output))
    return model


def with_a_forward_of_its_own() -> nn.Module:
    model = simple()
    first = model.get_submodule("0")
    made = first.forward
    first.forward = lambda x: functional.silu(made(x))
    return model


def with_a_hook_on_all_modules() -> nn.Module:
    return simple()


def transformer() -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)


def activated(module: nn.Module, _: object, output: Tensor) -> Tensor | None:
    return torch.relu(output) if type(module) is nn.Linear else None


MODELS = [
    simple, blocks, derived, with_a_hook_of_the_users, with_a_forward_of_its_own,
    with_a_hook_on_all_modules, transformer,
]  # fmt: skip


def captured(
    make: Callable[[], nn.Module], path: Path, collections: dict[str, SaveConfig | Collection]
) -> tuple[list[dict[str, dict[str, float]]], list[Tensor]]:
    """Train a little; return the statistics of each step, and the final weights."""
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(path, collections=collections) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(3):
            x = torch.randn(3, 5, 4) if make is transformer else torch.randn(6, 4)
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
    steps = [
        {name: dict(one) for name, one in step.reductions.items()}
        for step in open_run(path).follow()
    ]
    return steps, [parameter.detach() for parameter in model.parameters()]


@pytest.mark.thorough
@pytest.mark.parametrize("make", MODELS)
def test_selected_hooks_capture_as_much_as_hooks_on_all_modules(
    make: Callable[[], nn.Module], tmp_path: Path
) -> None:
    handle = None
    if make is with_a_hook_on_all_modules:
        # Torch uses its result as the module's, regardless of its annotation.
        handle = nn.modules.module.register_module_forward_hook(activated)  # type: ignore[arg-type]
    try:
        few, weights = captured(make, tmp_path / "few", dict(FEW))
        everything, others = captured(make, tmp_path / "all", dict(ALL))
    finally:
        if handle is not None:
            handle.remove()
    assert few == everything
    assert len(few) == 3
    assert any(name.startswith("outputs/") for name in few[0])
    assert all(torch.equal(*pair) for pair in zip(weights, others, strict=True))


def test_functions_are_named_by_the_module_that_calls_them(tmp_path: Path) -> None:
    steps, _ = captured(blocks, tmp_path / "run", dict(FEW))
    outputs = {name for name in steps[0] if name.startswith("outputs/")}
    assert outputs == {
        "outputs/2",
        *(
            f"outputs/{block}.{name}"
            for block in (0, 1)
            for name in ("inner.2", "inner.2#1", "gate", "gelu()", "tanh()")
        ),
    }


def test_inputs_of_several_models_need_no_hooks_inside_them(tmp_path: Path) -> None:
    hooked: list[int] = []
    given: list[Tensor] = []

    class Watching(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            hooked.append(len(self._forward_hooks) + len(self._forward_pre_hooks))
            return super().forward(x)

    first, second = nn.Sequential(Watching(4, 4)), nn.Sequential(Watching(4, 2))
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    with Hook(tmp_path / "run", collections={"model_inputs": SaveConfig(every=1)}) as hook:
        hook.watch(first, optimizer=optimizer, name="first").watch(second, name="second")
        for _ in range(3):
            given.append(torch.randn(3, 4))
            second(first(given[-1])).sum().backward()
            optimizer.step()
    run = open_run(tmp_path / "run")
    assert hooked == [0] * 6
    assert run.tensor_names(collection="model_inputs") == ["inputs/first", "inputs/second"]
    for step, value in enumerate(given):
        assert np.array_equal(run.tensor("inputs/first").value(step), value)
