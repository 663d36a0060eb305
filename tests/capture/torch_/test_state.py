"""Buffers, weights and gradients of all kinds of models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.store.reading.reader import Run

ALWAYS = SaveConfig(every=1)
KINDS = ("weights", "biases", "gradients", "buffers", "inputs", "outputs", "optimizer_state")
ALL = dict.fromkeys(KINDS, ALWAYS)


def fit(
    model: nn.Module,
    path: Path | None,
    *,
    x: Tensor,
    steps: int = 3,
    before: Callable[[int], None] = lambda step: None,
    batches: int = 1,
) -> Run | None:
    """Train; `before` is called before each forward of a step's first batch."""
    torch.manual_seed(9)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    hook = None if path is None else Hook(path, collections=ALL).watch(model, optimizer=optimizer)
    for step in range(steps):
        optimizer.zero_grad()
        before(step)
        for _ in range(batches):
            model(x).abs().sum().backward()
        optimizer.step()
    if hook is None or path is None:
        return None
    hook.close()
    assert hook.problems == []
    return open_run(path)


def test_buffers_are_those_before_the_first_forward(tmp_path: Path) -> None:
    x = torch.randn(6, 3)
    noted: list[dict[str, Tensor]] = []
    made = []
    for path in (None, tmp_path / "run"):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        norm = model[1]
        noted.clear()

        def note(_: int, norm: nn.Module = norm) -> None:
            noted.append({name: one.clone() for name, one in norm.named_buffers()})

        run = fit(model, path, x=x, before=note, batches=2)
        made.append(model.state_dict())
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])
    assert run is not None
    names = {f"buffers/1.{one}" for one in ("running_mean", "running_var", "num_batches_tracked")}
    assert set(run.tensor_names(collection="buffers")) == names
    for step, buffers in enumerate(noted):
        for name, buffer in buffers.items():
            found = run.tensor(f"buffers/1.{name}").value(step)
            np.testing.assert_array_equal(found, buffer, err_msg=name)
    assert run.tensor("buffers/1.num_batches_tracked").value(2).item() == 4
    assert run.tensor("buffers/1.num_batches_tracked").dtype == np.int64


def test_shared_missing_and_non_persistent_buffers(tmp_path: Path) -> None:
    class Holds(nn.Module):
        def __init__(self, table: Tensor) -> None:
            super().__init__()
            self.table: Tensor
            self.register_buffer("table", table, persistent=False)
            self.register_buffer("nothing", None)
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = x * self.table * self.scale
            return out

    table = torch.arange(3.0)
    run = fit(nn.Sequential(Holds(table), Holds(table)), tmp_path / "run", x=torch.ones(3))
    assert run is not None
    assert run.tensor_names(collection="buffers") == ["buffers/0.table"]


def test_frozen_parameters_and_those_without_a_gradient(tmp_path: Path) -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.used, self.unused = (nn.Linear(2, 2) for _ in range(3))
            self.frozen.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(self.frozen(x))  # type: ignore[no-any-return]

    model = Partly()
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    run = fit(model, tmp_path / "run", x=torch.ones(1, 2))
    assert run is not None
    for name in ("frozen", "used", "unused"):
        found = run.tensor(f"weights/{name}.weight")
        assert found.steps().tolist() == [0, 1, 2]
        np.testing.assert_array_equal(found.value(0), before[f"{name}.weight"])
    assert set(run.tensor_names(collection="gradients")) == {
        "gradients/used.weight", "gradients/used.bias",
    }  # fmt: skip


def test_manual_updates(tmp_path: Path) -> None:
    by_hand, last = nn.Linear(2, 3), nn.Linear(3, 1)
    model = nn.Sequential(by_hand, last)
    optimizer = torch.optim.SGD(last.parameters(), lr=0.1)
    noted = []
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(3):
            model.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            noted.append([torch.clone(one.weight.grad) for one in (by_hand, last)])  # type: ignore[arg-type]
            optimizer.step()
            with torch.no_grad():
                for parameter in by_hand.parameters():
                    assert parameter.grad is not None
                    parameter.sub_(parameter.grad, alpha=0.1)
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    for step, gradients in enumerate(noted):
        for place, gradient in enumerate(gradients):
            found = run.tensor(f"gradients/{place}.weight").value(step)
            np.testing.assert_array_equal(found, gradient)


def test_complex_parameters(tmp_path: Path) -> None:
    class Turning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.weight = nn.Parameter(torch.randn(3, 3, dtype=torch.complex64))

        def forward(self, x: Tensor) -> Tensor:
            # A conjugate view, and a transposed one.
            return x.to(torch.complex64) @ self.weight.mH

    model, plain = Turning(), Turning()
    x = torch.randn(2, 3)
    fit(plain, None, x=x)
    first = model.weight.detach().clone()
    run = fit(model, tmp_path / "run", x=x)
    assert torch.equal(plain.weight, model.weight)
    assert run is not None
    np.testing.assert_array_equal(run.tensor("weights/weight").value(0), first)
    with torch.no_grad():
        expected = x.to(torch.complex64) @ first.mH
    np.testing.assert_allclose(run.tensor("outputs/Turning").value(0), expected, rtol=1e-6)
    assert run.tensor("gradients/weight").dtype == np.complex64


def test_lazy_modules_from_their_first_forward_on(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    # Torch returns them while they have no shape.
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hook.watch(model)
        for _ in range(2):
            model(torch.randn(4, 2)).sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    assert run.tensor("weights/0.weight").steps().tolist() == [0, 1]
    # Uninitialized before the first forward.
    assert run.tensor("buffers/1.running_mean").steps().tolist() == [1]
    assert run.tensor("inputs/0").steps().tolist() == [0, 1]


def test_lists_and_dictionaries_of_modules(tmp_path: Path) -> None:
    class Chosen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
            self.acts = nn.ModuleDict({"relu": nn.ReLU(), "not-used": nn.Tanh()})
            self.extra = nn.ParameterList([nn.Parameter(torch.ones(2))])

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = self.acts["relu"](layer(x)) * self.extra[0]
            return x

    run = fit(Chosen(), tmp_path / "run", x=torch.ones(1, 2))
    assert run is not None
    assert set(run.tensor_names(collection="outputs")) == {
        "outputs/layers.0", "outputs/layers.1", "outputs/acts.relu", "outputs/acts.relu#1",
        "outputs/Chosen",
    }  # fmt: skip
    assert "weights/extra.0" in run.tensor_names()


@pytest.mark.filterwarnings("ignore:.torch.jit.*is deprecated")
def test_a_torchscript_submodule(tmp_path: Path) -> None:
    first, second = (nn.Sequential(scripted(), nn.Linear(2, 1)) for _ in range(2))
    second.load_state_dict(first.state_dict())
    x = torch.randn(4, 2)
    fit(first, None, x=x)
    run = fit(second, tmp_path / "run", x=x)
    assert run is not None
    assert same(first, second)
    for name in ("gradients/0.0.weight", "weights/0.0.weight", "buffers/0.1.running_mean"):
        assert run.tensor(name).steps().tolist() == [0, 1, 2]
    assert set(run.tensor_names(collection="outputs")) == {"outputs/1", "outputs/Sequential"}


@pytest.mark.filterwarnings("ignore:.torch.jit.*is deprecated")
def test_a_torchscript_model(tmp_path: Path) -> None:
    first, second, x = scripted(), scripted(), torch.randn(4, 2)
    fit(first, None, x=x)
    optimizer = torch.optim.SGD(second.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hook.watch(second, optimizer=optimizer)
        for _ in range(3):
            optimizer.zero_grad()
            second(x).abs().sum().backward()
            optimizer.step()
    (problem,) = hook.problems
    assert "outputs are due" in problem
    assert "TorchScript modules cannot be captured" in problem
    assert same(first, second)
    run = open_run(tmp_path / "run")
    assert run.tensor("gradients/0.weight").steps().tolist() == [0, 1, 2]
    assert run.tensor("weights/0.weight").steps().tolist() == [0, 1, 2]
    # They change in calls that cannot be observed.
    assert run.tensor_names(collection="buffers") == []


def scripted() -> nn.Module:
    torch.manual_seed(1)
    parts = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    return torch.jit.script(parts)


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)


def test_a_step_that_the_scaler_skips_gives_the_first_batchs_tensors(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hook.watch(model, optimizer=optimizer)
        for number, factor in enumerate((float("inf"), 1.0, 1.0)):
            optimizer.zero_grad()
            x = torch.full((1, 2), float(number))
            scaler.scale((model(x) * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == [0, 1]
    # Like micro-batches, from which it cannot be told apart: the first forward of the step.
    assert run.tensor("inputs/Linear").value(0).tolist() == [[0.0, 0.0]]
    assert run.tensor("gradients/weight").value(0).tolist() == [[1.0, 1.0]]
    assert run.tensor("inputs/Linear").value(1).tolist() == [[2.0, 2.0]]
