"""Mixed precision: consumed gradients, skipped steps."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, SaveConfig, open_run

_ALL = dict.fromkeys(
    ("weights", "biases", "gradients", "inputs", "outputs", "losses"), SaveConfig(every=1)
)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    labels = torch.randint(0, 3, (8,), generator=generator)
    return torch.randn(8, 6, generator=generator), labels


def reference(model: nn.Module, step: int) -> dict[str, Tensor]:
    """Return the gradients of a step in float64."""
    twin = copy.deepcopy(model).double()
    x, y = batch(step)
    loss = nn.functional.cross_entropy(twin(x.double()), y)
    gradients = torch.autograd.grad(loss, list(twin.parameters()))
    return dict(zip(dict(twin.named_parameters()), gradients, strict=True))


def optimizer_of(model: nn.Module, how: str) -> torch.optim.Optimizer:
    fused, foreach = how == "fused", how == "foreach"
    return torch.optim.Adam(model.parameters(), lr=0.01, fused=fused, foreach=foreach)


@pytest.mark.parametrize("how", ["plain", "foreach", "fused"])
def test_gradients_are_unscaled(how: str, tmp_path: Path) -> None:
    model, loss = net(), nn.CrossEntropyLoss()
    optimizer = optimizer_of(model, how)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=2)
    hook = Hook(tmp_path / "run", collections=_ALL).watch(model, loss, optimizer)
    expected = []
    for step in range(4):
        expected.append(reference(model, step))
        x, y = batch(step)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(model(x), y)
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
    hook.close()
    assert hook.problems == []
    assert scaler.get_scale() == 2.0**14
    run = open_run(tmp_path / "run")
    for step, gradients in enumerate(expected):
        for name, gradient in gradients.items():
            captured = run.tensor(f"gradients/{name}").value(step)
            scale = float(gradient.abs().max())
            np.testing.assert_allclose(
                captured, gradient, rtol=0, atol=0.05 * scale, err_msg=f"{name} {step}"
            )
    assert run.tensor("outputs/0").dtype.name == "bfloat16"
    assert run.tensor("weights/0.weight").dtype == np.float32
    # The loss is the value before it was scaled.
    losses = run.scalars("losses")["losses/CrossEntropyLoss"].values
    assert 0.5 < losses.min() <= losses.max() < 3


@pytest.mark.parametrize("how", ["plain", "fused"])
def test_a_skipped_step_leaves_no_infinite_gradients(how: str, tmp_path: Path) -> None:
    model, loss = net(), nn.CrossEntropyLoss()
    optimizer = optimizer_of(model, how)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    hook = Hook(tmp_path / "run", collections=_ALL).watch(model, loss, optimizer)
    weights: list[Tensor] = []
    for step in range(4):
        x, y = batch(step)
        optimizer.zero_grad()
        value = loss(model(x), y) * (float("inf") if step == 1 else 1)
        scaler.scale(value).backward()
        weights.append(next(model.parameters()).detach().clone())
        scaler.step(optimizer)
        scaler.update()
    hook.close()
    assert hook.problems == []
    # Unchanged by the second.
    assert torch.equal(weights[1], weights[2])
    run = open_run(tmp_path / "run")
    gradients = run.tensor("gradients/0.weight")
    for step in gradients.steps():
        assert np.isfinite(gradients.value(int(step))).all()
    # A fused optimizer is called and skips itself; others are not called.
    steps, taken = (4, [0, 2, 3]) if how == "fused" else (3, [0, 1, 2])
    assert run.steps("train").tolist() == list(range(steps))
    assert gradients.steps().tolist() == taken


def test_gradients_unscaled_manually_and_clipped(tmp_path: Path) -> None:
    model, loss = net(), nn.CrossEntropyLoss()
    optimizer = optimizer_of(model, "plain")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    hook = Hook(tmp_path / "run", collections=_ALL).watch(model, loss, optimizer)
    x, y = batch(0)
    scaler.scale(loss(model(x), y)).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    expected = {
        name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None
    }
    scaler.step(optimizer)
    hook.close()
    run = open_run(tmp_path / "run")
    for name, gradient in expected.items():
        np.testing.assert_array_equal(run.tensor(f"gradients/{name}").value(0), gradient.numpy())
    norms = [np.square(run.tensor(f"gradients/{name}").value(0)).sum() for name in expected]
    assert np.sqrt(sum(norms)) == pytest.approx(0.01, rel=1e-3)


def test_accumulated_and_scaled_gradients(tmp_path: Path) -> None:
    model, loss = net(), nn.CrossEntropyLoss()
    optimizer = optimizer_of(model, "fused")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    hook = Hook(tmp_path / "run", collections=_ALL).watch(model, loss, optimizer)
    both = [reference(model, micro) for micro in range(2)]
    values = []
    for micro in range(2):
        x, y = batch(micro)
        value = loss(model(x), y)
        values.append(value.item())
        scaler.scale(value / 2).backward()
    scaler.step(optimizer)
    hook.close()
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == [0]
    for name in both[0]:
        expected = (both[0][name] + both[1][name]) / 2
        captured = run.tensor(f"gradients/{name}").value(0)
        np.testing.assert_allclose(captured, expected, rtol=1e-4, atol=1e-7)
    captured_loss = run.scalars("losses")["losses/CrossEntropyLoss"].values.tolist()
    assert captured_loss == [pytest.approx(np.mean(values))]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_half_precision_model(dtype: torch.dtype, tmp_path: Path) -> None:
    model, loss = net().to(dtype), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    figures = SaveConfig(every=1, tensor=True, reductions=("l2", "mean", "std", "min"))
    hook = Hook(tmp_path / "run", collections=dict.fromkeys(_ALL, figures))
    hook.watch(model, loss, optimizer)
    x, y = batch(0)
    loss(model(x.to(dtype)), y).backward()
    notes: dict[str, Any] = {name: one.grad for name, one in model.named_parameters()}
    notes = {name: gradient.clone() for name, gradient in notes.items()}
    optimizer.step()
    hook.close()
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    for name, gradient in notes.items():
        view = run.tensor(f"gradients/{name}")
        assert view.value(0).tobytes() == gradient.view(torch.int16).numpy().tobytes()
        exact = gradient.double().numpy()
        assert view.reduction("l2").values[0] == pytest.approx(np.linalg.norm(exact), rel=1e-5)
        assert view.reduction("min").values[0] == exact.min()
