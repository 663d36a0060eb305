"""Losses of a watched model's training that the script does not pass to the hook."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from vinedresser import Hook, open_run
from vinedresser.store.collections.schedule import SaveConfig

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(12) % 3
TARGETS = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))
ALL = {name: SaveConfig(every=1) for name in ("predictions", "labels", "losses")}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def train(
    model: nn.Module, loss_of: Callable[[Tensor], Tensor], steps: int = 4, parts: int = 1
) -> list[float]:
    """Train and return the sum of the losses of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(parts):
            loss = loss_of(model(X)) / parts
            loss.backward()
            total += loss.item()
        losses.append(total)
        optimizer.step()
    return losses


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(
    ("loss_of", "labels"),
    [
        (lambda out: F.cross_entropy(out, CLASSES), CLASSES),
        (lambda out: nn.CrossEntropyLoss()(out, CLASSES), CLASSES),
        (lambda out: F.mse_loss(out, TARGETS) + 0.01 * out.square().mean(), TARGETS),
        (lambda out: ((out - TARGETS) ** 2).mean(), TARGETS),
    ],
    ids=["function", "module", "sum", "by hand"],
)
def test_what_goes_backward_is_the_loss(
    tmp_path: Path, loss_of: Callable[[Tensor], Tensor], labels: Tensor, parts: int
) -> None:
    model = network()
    with Hook(tmp_path / "run", collections=ALL).watch(model) as hook:
        losses = train(model, loss_of, parts=parts)
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    assert run.scalars("losses")["losses/loss"].values.tolist() == pytest.approx(losses)
    seen = torch.from_numpy(run.tensor("labels/loss").value(0).copy())
    assert torch.allclose(seen.to(labels.dtype), labels, atol=1e-5)
    assert run.tensor("predictions/loss").value(0).shape == (12, 3)


def test_the_label_that_a_function_ignores_is_known(tmp_path: Path) -> None:
    model = network()
    weights = torch.tensor([1.0, 2.0, 3.0])
    with Hook(tmp_path / "run", collections=ALL).watch(model):
        train(model, lambda out: F.cross_entropy(out, CLASSES, weights, ignore_index=0))
    assert open_run(tmp_path / "run").info.losses["loss"]["settings"] == {
        "reduction": "mean",
        "ignore_index": 0,
        "weight": True,
    }


def test_evaluations_have_the_same_loss(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = []
    with Hook(tmp_path / "run").watch(model):
        for _ in range(3):
            model.train()
            F.cross_entropy(model(X), CLASSES).backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                expected.append(F.cross_entropy(model(X), CLASSES).item())
    column = open_run(tmp_path / "run").scalars("losses", mode="eval")["losses/loss"]
    assert column.values.tolist() == pytest.approx(expected)


def test_a_loss_that_is_passed_is_the_only_one(tmp_path: Path) -> None:
    def by_wrapper(hook: Hook, model: nn.Module) -> None:
        wrapped = hook.watch(model).loss(F.cross_entropy)
        train(model, lambda out: wrapped(out, CLASSES) + 0.1 * out.mean())

    def by_module(hook: Hook, model: nn.Module) -> None:
        module = nn.CrossEntropyLoss()
        hook.watch(model, loss=module)
        train(model, lambda out: module(out, CLASSES) + 0.1 * out.mean())

    def by_value(hook: Hook, model: nn.Module) -> None:
        hook.watch(model)

        def loss_of(out: Tensor) -> Tensor:
            loss = F.cross_entropy(out, CLASSES)
            hook.save("losses/mine", loss)
            return loss

        train(model, loss_of)

    names = {by_wrapper: "cross_entropy", by_module: "CrossEntropyLoss", by_value: "mine"}
    for way, name in names.items():
        with Hook(tmp_path / way.__name__) as hook:
            way(hook, network())
        run = open_run(tmp_path / way.__name__)
        assert run.scalar_names(collection="losses") == [f"losses/{name}"]


def test_the_factor_of_a_scaler_is_no_part_of_the_loss(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = []
    with Hook(tmp_path / "run").watch(model):
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), CLASSES)
            losses.append(loss.item())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    column = open_run(tmp_path / "run").scalars("losses")["losses/loss"]
    assert column.values.tolist() == pytest.approx(losses)


def test_each_of_two_named_models_has_its_loss_and_others_have_none(tmp_path: Path) -> None:
    first, second, other = network(), network(), network()
    models = [first, second, other]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    losses: list[list[float]] = [[], [], []]
    with Hook(tmp_path / "run") as hook:
        hook.watch(first, optimizer=optimizers[0], name="first")
        hook.watch(second, optimizer=optimizers[1], name="second")
        for _ in range(3):
            for place in (2, 0, 1):
                loss = (place + 1) * F.cross_entropy(models[place](X), CLASSES)
                losses[place].append(loss.item())
                optimizers[place].zero_grad()
                loss.backward()
                optimizers[place].step()
    columns = open_run(tmp_path / "run").scalars("losses")
    assert columns["losses/first"].values.tolist() == pytest.approx(losses[0])
    assert columns["losses/second"].values.tolist() == pytest.approx(losses[1])
    assert len(columns) == 2


def test_training_is_the_same_and_torch_is_left_as_it_was(tmp_path: Path) -> None:
    original: Any = torch.autograd._make_grads
    plain, watched = network(), network()
    expected = train(plain, lambda out: F.mse_loss(out, TARGETS))
    with Hook(tmp_path / "run").watch(watched):
        assert train(watched, lambda out: F.mse_loss(out, TARGETS)) == expected
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.autograd._make_grads is original


def test_an_output_without_a_backward_pass_is_not_kept(tmp_path: Path) -> None:
    model = network()
    with Hook(tmp_path / "run", collections=ALL).watch(model):
        output = model(X)
        gone = weakref.ref(output)
        del output
        gc.collect()
        assert gone() is None


@pytest.mark.parametrize("moment", ["before the backward pass", "after it", "after the step"])
def test_a_policy_gradient_is_known_whose_loss_the_script_passes(
    tmp_path: Path, moment: str
) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    returns = torch.arange(1.0, 13)
    with Hook(tmp_path / "run").watch(model, optimizer=optimizer) as hook:
        for step in range(6):
            chosen = model(X).log_softmax(1).gather(1, CLASSES[:, None])[:, 0]
            policy, value = -(chosen * returns).mean(), model(X)[:, 0].sub(returns).square().mean()
            optimizer.zero_grad()
            if moment == "before the backward pass":
                hook.save("losses/total", policy + value)
            (policy + value).backward()
            if moment == "after it" or (moment == "after the step" and step):
                hook.save("losses/total", (policy + value).item())
            optimizer.step()
    run = open_run(tmp_path / "run")
    assert run.info.may_rise("losses/total")
    assert "losses/total" in run.scalars("losses")


def test_another_loss_that_the_script_passes_is_no_policy_gradient(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Hook(tmp_path / "run").watch(model, optimizer=optimizer) as hook:
        for _ in range(6):
            rows = F.cross_entropy(model(X), CLASSES, reduction="none")
            loss = (rows * torch.arange(1.0, 13)).mean()
            optimizer.zero_grad()
            hook.save("losses/total", loss)
            loss.backward()
            optimizer.step()
    info = open_run(tmp_path / "run").info
    assert info.losses == {}
    assert not info.may_rise("losses/total")
