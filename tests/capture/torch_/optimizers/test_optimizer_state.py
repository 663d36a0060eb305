"""Optimizer state and hyperparameters at the start of the step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.store.reading.reader import Run

STATE = {"optimizer_state": SaveConfig(every=1)}
STEPS = 4

Make = Callable[[Iterable[nn.Parameter]], Optimizer]
MAKERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "capturable": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01), foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
}


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1, bias=False))


def fit(
    make: Make,
    path: Path | None,
    before: Callable[[Optimizer, nn.Module], None] = lambda optimizer, model: None,
    collections: Any = None,
) -> tuple[list[Tensor], Optimizer]:
    """Train; `before` is called before each step. Return what is left at the end."""
    model = net()
    optimizer = make(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    hook = None if path is None else Hook(path, collections=collections or STATE)
    if hook is not None:
        hook.watch(model, optimizer=optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(torch.full((2, 3), 1.0 + step)).square().sum().backward()
        before(optimizer, model)
        optimizer.step()
        scheduler.step()
    if hook is not None:
        hook.close()
        assert hook.problems == []
    return [parameter.detach() for parameter in model.parameters()], optimizer


def known(optimizer: Optimizer, model: nn.Module) -> dict[str, Any]:
    """Return an optimizer's state by name, from its state dictionary."""
    names = [name for name, _ in model.named_parameters()]
    found = copy.deepcopy(optimizer.state_dict()["state"])
    return {
        f"{names[index]}.{slot}": value
        for index, slots in found.items()
        for slot, value in slots.items()
        if value is not None
    }


@pytest.mark.parametrize("maker", MAKERS)
def test_slots_are_those_before_the_step(maker: str, tmp_path: Path) -> None:
    noted: list[dict[str, Any]] = []
    plain, _ = fit(MAKERS[maker], None)
    hooked, _ = fit(
        MAKERS[maker],
        tmp_path / "run",
        lambda optimizer, model: noted.append(known(optimizer, model)),
    )
    assert all(torch.equal(one, other) for one, other in zip(plain, hooked, strict=True))
    run = open_run(tmp_path / "run")
    columns = run.scalars("optimizer_state")
    slots = set(noted[-1])
    for name in slots:
        full = f"optimizer_state/{name}"
        steps = [step for step in range(STEPS) if name in noted[step]]
        if full in columns:
            values = [float(noted[step][name]) for step in steps]
            assert columns[full].steps.tolist() == steps
            assert columns[full].values.tolist() == pytest.approx(values)
            continue
        view = run.tensor(full)
        assert view.steps().tolist() == steps
        for step in steps:
            np.testing.assert_array_equal(view.value(step), noted[step][name].numpy())
    assert (maker == "sgd") == (not slots)
    # Before its first step, only Adagrad has state.
    assert bool(noted[0]) == (maker == "adagrad")


def test_the_learning_rate_is_that_of_the_step(tmp_path: Path) -> None:
    fit(MAKERS["adam"], tmp_path / "run")
    columns = open_run(tmp_path / "run").scalars("optimizer_state")
    rates = columns["optimizer_state/lr"]
    assert rates.steps.tolist() == list(range(STEPS))
    assert rates.values.tolist() == pytest.approx([0.01, 0.01, 0.005, 0.005])
    assert set(columns["optimizer_state/beta1"].values) == {0.9}
    assert set(columns["optimizer_state/beta2"].values) == {0.999}
    assert set(columns["optimizer_state/weight_decay"].values) == {0.0}
    # Booleans are not numbers.
    assert "optimizer_state/amsgrad" not in columns


def test_parameter_groups_are_numbered(tmp_path: Path) -> None:
    model = net()
    first, last = list(model.parameters())[:2], list(model.parameters())[2:]
    optimizer: Optimizer = torch.optim.SGD(
        [{"params": first, "lr": 0.3}, {"params": last, "momentum": 0.5}], lr=0.1
    )
    with Hook(tmp_path / "run", collections=STATE) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(2):
            optimizer.step()
            optimizer.param_groups[1]["lr"] /= 2
    columns = open_run(tmp_path / "run").scalars("optimizer_state")
    assert columns["optimizer_state/lr"].values.tolist() == [0.3, 0.3]
    assert columns["optimizer_state/lr[1]"].values.tolist() == [0.1, 0.05]
    assert columns["optimizer_state/momentum[1]"].values.tolist() == [0.5, 0.5]


def test_cycled_momentum_is_captured(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=STEPS)
    noted = []
    with Hook(tmp_path / "run", collections=STATE) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(STEPS):
            noted.append(optimizer.param_groups[0]["momentum"])
            optimizer.step()
            scheduler.step()
    column = open_run(tmp_path / "run").scalars("optimizer_state")["optimizer_state/momentum"]
    assert column.values.tolist() == pytest.approx(noted)
    assert len(set(noted)) > 1


def test_lbfgs_state(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3, history_size=2)
    noted = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = model(torch.ones(2, 3)).square().sum()
        value.backward()
        return value

    with Hook(tmp_path / "run", collections=STATE) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(3):
            noted.append(known(optimizer, model))
            optimizer.step(closure)
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    direction = run.tensor("optimizer_state/0.weight.d")
    assert direction.steps().tolist() == [1, 2]
    np.testing.assert_array_equal(direction.value(2), noted[2]["0.weight.d"])
    evaluations = run.scalars("optimizer_state")["optimizer_state/0.weight.func_evals"]
    assert evaluations.values.tolist() == [one["0.weight.func_evals"] for one in noted[1:]]
    old = run.tensor("optimizer_state/0.weight.old_dirs[0]").value(2)
    np.testing.assert_array_equal(old, noted[2]["0.weight.old_dirs"][0])


def test_parameters_with_one_element_or_no_dimensions(tmp_path: Path) -> None:
    model = nn.ParameterDict({"one": torch.ones(1), "none": torch.tensor(2.0)})
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=STATE) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(2):
            (model["one"] * model["none"]).sum().backward()
            optimizer.step()
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    assert run.tensor("optimizer_state/one.exp_avg").shape == (1,)
    assert run.tensor("optimizer_state/none.exp_avg").shape == ()
    assert run.scalars("optimizer_state")["optimizer_state/one.step"].values.tolist() == [1.0]


def test_sparse_gradients_and_frozen_parameters(tmp_path: Path) -> None:
    embedding = nn.Embedding(5, 2, sparse=True)
    model = nn.Sequential(embedding, nn.Linear(2, 1).requires_grad_(False))
    optimizer = torch.optim.SparseAdam([embedding.weight], lr=0.1)
    with Hook(tmp_path / "run", collections=STATE) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.tensor([1, 3])).sum().backward()
            optimizer.step()
    assert hook.problems == []
    names = open_run(tmp_path / "run").tensor_names()
    assert set(names) == {f"optimizer_state/0.weight.{slot}" for slot in ("exp_avg", "exp_avg_sq")}


def test_nothing_is_touched_if_it_is_not_due(tmp_path: Path) -> None:
    touched = []

    class Noting(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            touched.append(key)
            return super().get(key, default)

    def before(optimizer: Optimizer, _: nn.Module) -> None:
        if not isinstance(optimizer.state, Noting):
            kept = {one: {} for one in optimizer.param_groups[0]["params"]}  # type: ignore[var-annotated]
            optimizer.state = Noting(kept)  # type: ignore[assignment]

    weights = {"weights": SaveConfig(every=1)}
    fit(lambda p: torch.optim.SGD(p, lr=0.1), tmp_path / "run", before, weights)
    assert touched == []
    late = {"optimizer_state": SaveConfig(every=0, steps=(2,))}
    fit(lambda p: torch.optim.SGD(p, lr=0.1), tmp_path / "late", before, late)
    assert len(touched) == 3
    run: Run = open_run(tmp_path / "late")
    assert run.scalars("optimizer_state")["optimizer_state/lr"].steps.tolist() == [2]
