"""Trials of other activations, initial weights, outputs, losses and parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, Optimizer

from tests.replay.what_if.trainings import samples
from vinedresser.capture import Hook
from vinedresser.replay.batch import Batch
from vinedresser.replay.factory import Parts
from vinedresser.replay.recorded import recorded_step
from vinedresser.replay.results import Comparison
from vinedresser.replay.running import Replay
from vinedresser.replay.stepping import Replayed
from vinedresser.replay.what_if.functions_seen import FunctionsSeen, Network
from vinedresser.replay.what_if.initialising import unusual_weights
from vinedresser.replay.what_if.replaced_functions import replaced_activations
from vinedresser.replay.what_if.results import WhatIf
from vinedresser.replay.what_if.trying import what_if
from vinedresser.snapshots.reading import open_snapshot
from vinedresser.snapshots.settings import SnapshotSettings

Loss = Callable[[Tensor, Tensor], Tensor]
_STEPS = 60


def tried(
    folder: Path,
    model: nn.Module,
    optimizer: Optimizer,
    loss_fn: Loss = functional.cross_entropy,
    targets: Callable[[Tensor, Tensor], Tensor] = lambda _, labels: labels,
) -> WhatIf:
    """Try changes on the first step of a training, with a batch of `samples` for each step.

    Args:
        folder: place of the run.
        model: the model.
        optimizer: its optimizer.
        loss_fn: its loss.
        targets: returns the targets of rows and labels.
    """
    batches = [
        Batch((rows,), {}, (), targets(rows, labels))
        for rows, labels in (samples(step) for step in range(_STEPS))
    ]

    def take(batch: Batch) -> Tensor:
        optimizer.zero_grad()
        loss = loss_fn(model(batch.args[0]), batch.loaded)
        loss.backward()
        optimizer.step()
        return loss

    hook = Hook(folder, guard="nonfinite", snapshots=SnapshotSettings(every=1000))
    hook.watch(model, optimizer=optimizer)
    take(batches[0])
    hook.close()
    step = recorded_step(open_snapshot(folder / "snapshots" / "step-0"))
    step.batches[:] = batches[:1]
    parts = Parts({"": model}, [optimizer], step=take, batches=batches[1:])
    again = Replay(parts, step, "test")
    outcome = again.run()
    found = what_if(
        Replayed(again, outcome, Comparison(None, 0, [], {})), steps=_STEPS, seconds=600.0
    )
    # The recorded state is there again, bit for bit.
    assert again.run().gradients == outcome.gradients
    return found


def deep(activation: type[nn.Module], layers: int, size: int = 24) -> nn.Sequential:
    """Build a classifier of `samples` with many hidden layers."""
    parts: list[nn.Module] = [nn.Linear(12, size), activation()]
    for _ in range(layers - 1):
        parts += [nn.Linear(size, size), activation()]
    return nn.Sequential(*parts, nn.Linear(size, 4))


def kinds(found: WhatIf) -> set[str]:
    """Return the kinds of changes that cure."""
    return {cure.kind for cure in found.cures}


@pytest.mark.thorough
def test_other_activations_cure_a_signal_that_vanishes_in_sigmoids(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = deep(nn.Sigmoid, 8)
    found = tried(tmp_path, model, Adam(model.parameters(), lr=3e-3))
    assert "saturating activation" in kinds(found)
    assert " instead of sigmoid in hidden layers cures it" in found.conclusion
    assert not any(isinstance(one, nn.ReLU) for one in model)


@pytest.mark.thorough
def test_usual_weights_cure_too_small_ones(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = deep(nn.Tanh, 8)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    found = tried(tmp_path, model, Adam(model.parameters(), lr=3e-3))
    assert kinds(found) == {"small initial weights"}


@pytest.mark.thorough
def test_usual_biases_cure_units_that_are_dead_at_first(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = deep(nn.ReLU, 2)
    nn.init.constant_(model.get_parameter("0.bias"), -9.0)
    found = tried(tmp_path, model, Adam(model.parameters(), lr=3e-3))
    assert "initial biases" in kinds(found)
    assert "usual initial values of 0.bias" in found.conclusion


@pytest.mark.thorough
def test_a_second_softmax_is_left_out(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(deep(nn.ReLU, 1), nn.Softmax(dim=-1))
    found = tried(tmp_path, model, Adam(model.parameters(), lr=0.01))
    assert [cure.change for cure in found.cures] == ["no softmax of the outputs"]


@pytest.mark.thorough
def test_an_output_that_targets_exceed_is_free_of_its_activation(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1), nn.Sigmoid())
    found = tried(
        *(tmp_path, model, Adam(model.parameters(), lr=0.02), functional.mse_loss),
        lambda rows, _: 20 + 5 * rows[:, :1],
    )
    assert kinds(found) == {"output activation"}
    assert "no sigmoid of the outputs; targets range from" in found.conclusion


@pytest.mark.thorough
def test_targets_are_standardized_and_compared_on_their_own_scale(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1))
    found = tried(
        *(tmp_path, model, Adam(model.parameters(), lr=0.01), functional.mse_loss),
        lambda rows, _: 5000 + 1000 * rows[:, :1],
    )
    (cure,) = found.cures
    assert cure.kind == "targets"
    # The first loss is that of about their mean: the variance of the rows, in their unit.
    assert cure.course.losses[0] == pytest.approx(1e6, rel=1.0)
    assert cure.course.last < 0.5 * cure.course.losses[0]


@pytest.mark.thorough
def test_targets_get_the_shape_of_the_outputs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1))
    with pytest.warns(UserWarning, match="target size"):
        found = tried(
            *(tmp_path, model, Adam(model.parameters(), lr=0.01), functional.mse_loss),
            lambda rows, _: rows[:, 0],
        )
    assert [cure.kind for cure in found.cures] == ["target shape"]


@pytest.mark.thorough
def test_a_sum_is_a_mean_whose_values_are_still_those_of_the_sum(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = deep(nn.ReLU, 1)
    loss = partial(functional.cross_entropy, reduction="sum")
    found = tried(tmp_path, model, SGD(model.parameters(), lr=0.5, momentum=0.9), loss)
    trial = next(one for one in found.trials if one.kind == "loss reduction")
    assert trial.cures
    assert trial.course.losses[0] == pytest.approx(found.unchanged.losses[0], rel=1e-4)


@pytest.mark.thorough
def test_a_forgotten_layer_is_trained(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = deep(nn.ReLU, 2)
    optimizer = Adam([*model[2].parameters(), *model[4].parameters()], lr=1e-3)
    groups = len(optimizer.param_groups)
    found = tried(tmp_path, model, optimizer)
    trial = next(one for one in found.trials if one.kind == "parameters")
    assert trial.change.startswith("2 other parameters trained, too: 0.weight")
    assert trial.course.last < found.unchanged.last
    assert len(optimizer.param_groups) == groups


class Cut(nn.Module):
    """Detaches what it gets."""

    def forward(self, value: Tensor) -> Tensor:
        """Return the value [batch, ...] without its graph."""
        return value.detach()


@pytest.mark.thorough
def test_gradients_pass_where_the_model_detaches(tmp_path: Path) -> None:
    torch.manual_seed(0)
    end = nn.Linear(24, 4)
    nn.init.zeros_(end.weight)
    model = nn.Sequential(nn.Linear(12, 24), nn.Linear(24, 24), nn.Tanh(), Cut(), end)
    found = tried(tmp_path, model, Adam(model.parameters(), lr=1e-3))
    assert "no detach() in the model" in {one.change for one in found.trials}
    trial = next(one for one in found.trials if one.kind == "detach")
    assert trial.course.last < found.unchanged.last


@pytest.mark.thorough
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.GELU, nn.Sigmoid])
def test_no_healthy_network_has_a_cure(tmp_path: Path, activation: type[nn.Module]) -> None:
    torch.manual_seed(1)
    model = deep(activation, 2)
    # Slow, so that its loss falls only little.
    found = tried(tmp_path, model, Adam(model.parameters(), lr=2e-4))
    assert found.symptom
    assert found.cures == []


class Gated(nn.Module):
    """A gate, a hidden activation, and an activation of the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate, self.last = nn.Linear(12, 8), nn.Linear(12, 8), nn.Linear(8, 3)

    def forward(self, rows: Tensor) -> Tensor:
        """Return shares [batch, 3] of rows [batch, 12]."""
        hidden = torch.tanh(self.first(rows)) + 0.0
        gate = torch.sigmoid(self.gate(rows))
        return torch.softmax(self.last(functional.relu(hidden * gate)), -1)


def seen(model: nn.Module) -> Network:
    """Return what a model computes of rows."""
    functions = FunctionsSeen(model)
    with functions.watching():
        functional.mse_loss(model(samples(0)[0]), torch.zeros(64, 3)).backward()
    network = functions.ended()
    assert network is not None
    return network


def test_gates_and_outputs_are_no_hidden_activations() -> None:
    torch.manual_seed(0)
    model = Gated()
    network = seen(model)
    assert network.hidden == ((2, "relu"),)
    assert network.last == (3, "softmax")
    assert network.width == 3
    assert network.targets is not None
    assert (network.targets.loss, network.targets.highest) == ("mse_loss", 0.0)
    # Another function in the place of the hidden one.
    rows = samples(0)[0]
    hidden = torch.tanh(model.first(rows)) * torch.sigmoid(model.gate(rows))
    wanted = model.last(hidden.square()).softmax(-1)
    with replaced_activations(model, {2: ("relu", torch.square)}):
        torch.testing.assert_close(model(rows), wanted)
    torch.testing.assert_close(model(rows), model.last(hidden.relu()).softmax(-1))


def test_the_signal_is_the_share_of_the_inputs_behind_the_last_hidden_layer() -> None:
    torch.manual_seed(0)
    model = deep(nn.ReLU, 3)
    assert seen(nn.Sequential(model, nn.Linear(4, 3))).signal > 0.01
    nn.init.constant_(model.get_parameter("4.bias"), -100.0)
    assert seen(nn.Sequential(model, nn.Linear(4, 3))).signal == 0.0


@pytest.mark.parametrize(
    "init",
    [nn.init.xavier_normal_, nn.init.kaiming_uniform_, nn.init.orthogonal_, lambda _: None],
)
def test_usual_weights_are_not_unusual(init: Callable[[Tensor], object]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            init(parameter)
    assert unusual_weights(model, "relu") == []
    assert unusual_weights(nn.Sequential(nn.GRU(1, 24), nn.Linear(24, 3)), "") == []
    nn.init.normal_(model.get_parameter("1.weight"), std=1.0)
    nn.init.ones_(model.get_parameter("3.weight"))
    found = unusual_weights(model, "relu")
    assert [(one.name, one.why) for one in found] == [("1.weight", "large"), ("3.weight", "equal")]
    assert found[0].std == pytest.approx((2 / 64) ** 0.5)
