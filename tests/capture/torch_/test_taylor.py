"""First-order Taylor terms, against gradients computed by hand in float64."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from vinedresser.capture import Collection, Hook, SaveConfig, open_run
from vinedresser.store.reading.reader import Run

ALWAYS = SaveConfig(every=1)
TAYLOR = {"input_taylor": ALWAYS, "weight_taylor": ALWAYS}


class Net(nn.Module):
    """Convolution, normalisation, a transposed and a grouped convolution, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.up = nn.ConvTranspose2d(4, 6, 2, stride=2)
        self.grouped = nn.Conv2d(6, 4, 3, groups=2)
        self.hidden = nn.Linear(4, 5)
        self.head = nn.Linear(5, 3)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the inputs of the grouped convolution and of the linear layers."""
        up = self.up(self.relu(self.norm(self.conv(x))))
        tokens = self.grouped(up).flatten(2).transpose(1, 2)  # [batch, space, channels]
        return up, tokens, F.relu(self.hidden(tokens))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, float [batch, 3]."""
        logits: Tensor = self.head(self.parts(x)[2]).mean(1)
        return logits


def train(path: Path | None, *, steps: int = 2) -> tuple[Net, Run | None]:
    torch.manual_seed(4)
    model = Net().double()
    data = torch.randn(steps, 3, 2, 5, 5, dtype=torch.float64)
    labels = torch.randint(3, (steps, 3))
    stepper = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = None if path is None else Hook(path, collections=TAYLOR).watch(model)
    for x, y in zip(data, labels, strict=True):
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        stepper.step()
    if hook is None or path is None:
        return model, None
    hook.close()
    assert hook.problems == []
    return model, open_run(path)


def step(model: nn.Module, x: Tensor) -> None:
    model(x).square().sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()


def first_step() -> tuple[Mapping[str, Tensor], Mapping[str, tuple[Tensor, Tensor]]]:
    """Return weight times gradient, and inputs with their gradients, of the first step."""
    torch.manual_seed(4)
    model = Net().double()
    data = torch.randn(2, 3, 2, 5, 5, dtype=torch.float64)
    labels = torch.randint(3, (2, 3))
    inputs = model.parts(data[0])
    loss = F.cross_entropy(model.head(inputs[2]).mean(1), labels[0])
    gradients = torch.autograd.grad(loss, inputs, retain_graph=True)
    loss.backward()
    weights = {
        name: (one * one.grad).detach()
        for name, one in model.named_parameters()
        if one.grad is not None
    }
    names = ("grouped", "hidden", "head")
    return weights, dict(zip(names, zip(inputs, gradients, strict=True), strict=True))


def test_terms_of_inputs_and_weights(tmp_path: Path) -> None:
    _, run = train(tmp_path / "run")
    assert run is not None
    weights, inputs = first_step()
    for name, (value, gradient) in inputs.items():
        space = (2, 3) if value.dim() == 4 else (1,)
        expected = (value * gradient).mean(space).detach().numpy()
        found = run.tensor(f"input_taylor/{name}").value(step=0)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-18)
    for name, product in weights.items():
        axis = 1 if name == "up.weight" else 0
        axes = tuple(one for one in range(product.dim()) if one != axis)
        expected = (product.sum(axes) if axes else product).numpy()
        found = run.tensor(f"weight_taylor/{name}").value(step=0)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-18)
    # The image needs no gradient, so the first convolution's input has no terms.
    assert "input_taylor/conv" not in run.tensor_names()


def test_weights_that_no_optimizer_updates(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    hook = Hook(tmp_path / "run", collections=TAYLOR).watch(model, optimizer=optimizer)
    model(torch.randn(2, 3)).sum().backward()
    first = next(model.parameters())
    assert first.grad is not None
    expected = (first * first.grad).sum(1).detach().numpy()
    optimizer.step()
    hook.close()
    found = open_run(tmp_path / "run").tensor("weight_taylor/0.weight").value(step=0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_training_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    plain, _ = train(None, steps=4)
    watched, _ = train(tmp_path / "run", steps=4)
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)


def test_reductions_of_the_terms(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    save = SaveConfig(every=1, reductions=("channel_mean", "channel_abs_mean"))
    hook = Hook(tmp_path / "run", collections={"input_taylor": save}).watch(model)
    step(model, torch.randn(5, 3))
    hook.close()
    terms = open_run(tmp_path / "run").tensor("input_taylor/2")
    assert terms.channels("mean", step=0).shape == (4,)
    assert (terms.channels("abs_mean", step=0) >= np.abs(terms.channels("mean", step=0))).all()


def test_an_input_that_is_overwritten_before_its_gradient_is_reported(tmp_path: Path) -> None:
    class Overwrites(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.same = nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            z: Tensor = self.same(y)
            z.add_(1)
            return z

    torch.manual_seed(0)
    model = Overwrites()
    hook = Hook(tmp_path / "run", collections={"input_taylor": ALWAYS}).watch(model)
    step(model, torch.randn(2, 3))
    hook.close()
    assert any("input_taylor/same: not captured" in problem for problem in hook.problems)


def test_a_backward_after_the_end_of_the_step_is_ignored(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    hook = Hook(tmp_path / "run", collections={"input_taylor": ALWAYS}).watch(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    late = model(torch.randn(2, 3))
    optimizer.step()
    late.sum().backward()
    model(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    hook.close()
    assert hook.problems == []
    assert open_run(tmp_path / "run").tensor("input_taylor/1").steps() == [1]


def test_only_the_modules_of_a_collection(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    readers = Collection(regex=r"^input_taylor/2$", save=ALWAYS)
    hook = Hook(tmp_path / "run", collections={"readers": readers}).watch(model)
    step(model, torch.randn(2, 3))
    hook.close()
    assert open_run(tmp_path / "run").tensor_names() == ["input_taylor/2"]
