"""Zero, nearly constant or unchanged tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.inside_trainings import captured, found, stack
from tests.rules.trainings import Data, adam, digits, sgd
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.tensors.no_signal import NoSignal
from vinedresser.store.reading.reader import open_run

WIDTHS = (64, 32, 32, 10)


def dead() -> nn.Module:
    """Return a network that passes no signal."""
    return stack(WIDTHS, nn.ReLU, bias=-10.0)


@pytest.mark.thorough
def test_zero_gradients_are_found(tmp_path: Path) -> None:
    rule = NoSignal()
    (finding,) = found(captured(tmp_path, [rule], dead, adam(1e-3)), rule)
    assert (finding.fault, finding.severity) == ("no_signal", "warning")
    # In the last layer, only the bias has a gradient.
    assert finding.evidence["zero"] == [
        f"gradients/{layer}.{kind}"
        for layer in (0, 2, 4)
        for kind in ("weight", "bias")
        if (layer, kind) != (4, "bias")
    ]


class Lossy(nn.Module):
    """A cross-entropy of changed outputs."""

    def __init__(self, change: Callable[[Tensor], Tensor], factor: float = 1.0) -> None:
        super().__init__()
        self.change, self.factor = change, factor

    def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of outputs [N, K] and class numbers [N]."""
        loss: Tensor = self.factor * functional.cross_entropy(self.change(outputs), labels)
        return loss


@pytest.mark.thorough
@pytest.mark.parametrize(
    "change",
    # The first underflows in float32, as small numbers do in float16; the second has no slope.
    [lambda outputs: 1e-25 * (1e-25 * outputs), lambda outputs: outputs.clamp(min=50.0)],
    ids=["underflow", "clipped"],
)
def test_gradients_that_never_arrive_are_warned_of_at_once(
    change: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    rule, model = NoSignal(), lambda: stack(WIDTHS, nn.ReLU)
    (finding,) = found(captured(tmp_path, [rule], model, sgd(0.1), loss=Lossy(change)), rule)
    assert (finding.severity, finding.fault, finding.step) == ("warning", "vanishing_gradient", 10)


@pytest.mark.thorough
@pytest.mark.parametrize("cut_off", [True, False])
def test_outputs_that_an_activation_cuts_off(tmp_path: Path, *, cut_off: bool) -> None:
    """The same outputs of 0 by a last layer of zeros have gradients."""

    def model() -> nn.Module:
        layers = stack(WIDTHS, nn.ReLU)
        last = [module for module in layers.modules() if isinstance(module, nn.Linear)][-1]
        nn.init.zeros_(last.weight)
        nn.init.constant_(last.bias, -1.0 if cut_off else 0.0)
        return nn.Sequential(layers, nn.ReLU()) if cut_off else layers

    rule = NoSignal()
    findings = found(captured(tmp_path, [rule], model, sgd(0.1)), rule)
    expected = [("warning", "loss_output_mismatch", 10)] if cut_off else []
    assert [(finding.severity, finding.fault, finding.step) for finding in findings] == expected


@pytest.mark.parametrize("shared", [False, True])
def test_a_model_that_is_its_own_reference_is_not_trained(
    tmp_path: Path,
    shared: bool,
) -> None:
    """Its loss, the log-sigmoid of a difference of 0, is the same for all batches."""
    torch.manual_seed(0)
    rule, data, model = NoSignal(), digits(), stack(WIDTHS, nn.ReLU)
    reference = model if shared else copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(model, optimizer=optimizer)
        loss_of = hook.loss(lambda gain: -functional.logsigmoid(gain).mean(), name="preference")
        for step in range(60):
            x, y = (one[step * 20 : step * 20 + 20] for one in (data.x, data.y))
            gain = (model(x) - reference(x)).gather(1, y[:, None])
            optimizer.zero_grad()
            loss_of(gain).backward()
            optimizer.step()
    findings = found(open_run(tmp_path / "run"), rule)
    expected = [("warning", "untrained_parameters", 5)] if shared else []
    assert [(finding.severity, finding.fault, finding.step) for finding in findings] == expected


def test_a_loss_of_zero_has_no_gradient(tmp_path: Path) -> None:
    # As while the weight of a loss is still 0, or all margins are kept.
    rule, model = NoSignal(), lambda: stack(WIDTHS, nn.ReLU)
    loss = Lossy(lambda outputs: outputs, factor=0.0)
    findings = found(captured(tmp_path, [rule], model, sgd(0.1), steps=140, loss=loss), rule)
    assert findings == []


@pytest.mark.thorough
@pytest.mark.parametrize(("total", "step"), [(200, 160), (None, 180)])
def test_a_loss_that_leaves_all_labels_out(total: int | None, step: int, tmp_path: Path) -> None:
    """As with an inverted mask: it is divided by 1 where no label counts."""
    torch.manual_seed(0)
    rule, data, model = NoSignal(), digits(), stack(WIDTHS, nn.ReLU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    collections = capture_for([rule]).collections
    with Hook(tmp_path / "run", collections=collections, total_steps=total) as hook:
        hook.watch(model, optimizer=optimizer)
        loss_of = hook.loss(Lossy(lambda outputs: outputs, factor=0.0), name="masked")
        for rows in torch.randint(1000, (200, 8)):
            optimizer.zero_grad()
            loss_of(model(data.x[rows]), data.y[rows]).backward()
            optimizer.step()
    (finding,) = found(open_run(tmp_path / "run"), rule)
    assert (finding.severity, finding.fault) == ("warning", "loss_output_mismatch")
    assert finding.step == step


@pytest.mark.thorough
def test_some_zeros_are_ignored(tmp_path: Path) -> None:
    data = digits()
    order = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(3))
    shuffled = Data(data.x, data.y[order], data.x_eval, data.y_eval)
    rule, model = NoSignal(), lambda: stack(WIDTHS, nn.ReLU)
    assert found(captured(tmp_path, [rule], model, sgd(1e-3), data=shuffled), rule) == []


@pytest.mark.thorough
def test_nearly_constant_outputs_are_found(tmp_path: Path) -> None:
    rule = NoSignal()
    small = lambda weight: nn.init.normal_(weight, std=1e-6)  # noqa: E731
    model = lambda: stack(WIDTHS, nn.Tanh, small, bias=0.5)  # noqa: E731
    (finding,) = found(captured(tmp_path, [rule], model, sgd(1e-6)), rule)
    assert (finding.fault, finding.severity) == ("no_signal", "warning")


@pytest.mark.thorough
def test_frozen_weights_are_not_reported_as_unchanged(tmp_path: Path) -> None:
    """Two layers are frozen, and the third learns far too slowly."""
    rule = NoSignal()

    def model() -> nn.Module:
        net = stack(WIDTHS, nn.ReLU)
        net[:4].requires_grad_(False)
        return net

    run = captured(tmp_path, [rule], model, sgd(1e-4))
    assert len(run.info.frozen) == 4
    assert found(run, rule) == []


@pytest.mark.thorough
def test_updates_below_the_precision_are_found(tmp_path: Path) -> None:
    """Steps below the precision of float32."""
    rule = NoSignal()
    model = lambda: stack(WIDTHS, nn.ReLU)  # noqa: E731
    (finding,) = found(captured(tmp_path, [rule], model, sgd(1e-14)), rule)
    assert finding.tensor == "weights/0.weight"
