"""Rules about inputs and targets: scale and lost information."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.rules.data.trainings import found_in, network, with_inputs
from tests.rules.trainings import Data, adam, diabetes, digits, sgd
from vinedresser.capture import Hook, open_run
from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.data.corrupt_inputs import CorruptInputs
from vinedresser.rules.data.leakage.data_leakage import DataLeakage
from vinedresser.rules.data.token_ratio import TokenRatio
from vinedresser.rules.data.unnormalised_inputs import UnnormalisedInputs
from vinedresser.rules.data.unnormalised_targets import UnnormalisedTargets
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding
from vinedresser.testing.runs import make_run, step_record


def tanh() -> nn.Module:
    """Return a network that saturates for large inputs."""
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def unnormalised(path: Path, scale: float, rate: float, model: Callable[[], nn.Module]) -> Finding:
    """Return the finding for scaled digits, trained by gradient descent."""
    data = with_inputs(lambda x: x * scale)
    found = found_in(path, [UnnormalisedInputs()], data, model, optimizer=sgd(rate), batch=64)
    (finding,) = found
    return finding


@pytest.mark.thorough
def test_saturating_inputs_are_reported_with_statistics(tmp_path: Path) -> None:
    finding = unnormalised(tmp_path, 255.0, 1e-4, tanh)
    pixels = digits().x * 255
    assert (finding.fault, finding.tensor) == ("unnormalised_inputs", "inputs/Sequential")
    assert finding.value == pytest.approx(float(pixels.square().mean().sqrt()), rel=0.1)
    assert finding.evidence["mean"] == pytest.approx(float(pixels.mean()), rel=0.1)
    assert finding.evidence["std"] == pytest.approx(float(pixels.std()), rel=0.1)
    assert finding.since <= 25
    assert "255" in finding.remedy


def test_inputs_with_a_diverging_loss_are_reported_immediately(tmp_path: Path) -> None:
    data = with_inputs(lambda x: x * 255)
    data = replace(data, y=data.y[:, None].float() / 10)
    (finding,) = found_in(
        tmp_path,
        [UnnormalisedInputs()],
        data,
        lambda: nn.Linear(64, 1),
        loss=nn.MSELoss(),
        optimizer=sgd(0.1),
    )
    assert finding.step <= 20
    assert "not finite" in finding.seen


@pytest.mark.parametrize(
    ("model", "first", "found"),
    [
        ("Sequential", "Embedding", True),
        ("Sequential", "Dense", False),
        # It may take one column for an index, and the others for quantities.
        ("Recommender", "Embedding", False),
        ("Functional", "Embedding", False),
    ],
)
def test_decimals_before_an_embedding_of_keras(
    model: str, first: str, *, found: bool, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    records = [
        step_record(
            5 * step,
            scalars={"losses/loss": 1.0},
            tensors={"inputs/batch": generator.random((32, 6)).astype("float32")},
        )
        for step in range(3)
    ]
    modules = {model: [model, "", "model"], "first": [first, ""], "dense": ["Dense", ""]}
    run = make_run(tmp_path / "run", records, framework="keras", modules=modules)
    seen = [one.seen for one in judge(run, [CorruptInputs()]) if one.statistic]
    assert ["which it cuts off" in one for one in seen] == [True] * found


class Masking(nn.Module):
    """Leaves out the rows of a certain value, as the layer of Keras does."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows as they are, for a loss that diverges."""
        return x


def test_inputs_of_which_a_layer_masks_some_are_ignored(tmp_path: Path) -> None:
    data = with_inputs(lambda x: x * 255)
    data = replace(data, y=data.y[:, None].float() / 10)
    found = found_in(
        tmp_path,
        [UnnormalisedInputs()],
        data,
        lambda: nn.Sequential(Masking(), nn.Linear(64, 1)),
        loss=nn.MSELoss(),
        optimizer=sgd(0.1),
    )
    assert found == []


@pytest.mark.thorough
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_inputs_of_usual_size_are_ignored(scale: float, tmp_path: Path) -> None:
    data = with_inputs(lambda x: (x - 0.3) / 0.38 * scale)
    rules = [UnnormalisedInputs()]
    assert found_in(tmp_path, rules, data, tanh, optimizer=sgd(1e-6), batch=64) == []


@pytest.mark.thorough
def test_large_inputs_of_a_learning_network_are_ignored(tmp_path: Path) -> None:
    data = with_inputs(lambda x: x * 255)
    assert found_in(tmp_path, [UnnormalisedInputs()], data, network(), optimizer=adam(1e-3)) == []


@pytest.mark.thorough
def test_inputs_that_the_first_layer_normalises_are_ignored(tmp_path: Path) -> None:
    """What else is wrong, such as steps that are far too small, is not blamed on them."""
    data = with_inputs(lambda x: x * 255)

    def model() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(64), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))

    rules = [UnnormalisedInputs()]
    assert found_in(tmp_path, rules, data, model, optimizer=sgd(1e-6), batch=64) == []


@pytest.mark.parametrize("normalised", [False, True])
def test_huge_inputs_of_the_first_layer_are_warned_of(
    tmp_path: Path,
    normalised: bool,
) -> None:
    """Whatever is learned; a model that divides them first gets usual ones."""
    data = with_inputs(lambda x: x * 1e6)

    class Divided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layers(x / 1e6 if normalised else x)
            return out

    found = found_in(
        tmp_path, [UnnormalisedInputs()], data, Divided, optimizer=adam(1e-3), batch=64, steps=60
    )
    assert [one.severity for one in found] == ([] if normalised else ["warning"])


class Recurrent(nn.Module):
    """Scores [N, 10] of the rows [N, 64] of digits, line by line."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores."""
        scores: Tensor = self.head(self.lstm(x.reshape(-1, 8, 8))[0][:, -1])
        return scores


@pytest.mark.thorough
@pytest.mark.parametrize(("scale", "warned"), [(2000.0, True), (1.0, False)])
def test_inputs_that_saturate_the_gates_of_a_recurrent_layer(
    scale: float, warned: bool, tmp_path: Path
) -> None:
    data, rules = with_inputs(lambda x: x * scale), [UnnormalisedInputs()]
    found = found_in(tmp_path, rules, data, Recurrent, optimizer=sgd(0.01), batch=64, steps=300)
    assert bool(found) == warned


def test_the_threshold_is_a_parameter(tmp_path: Path) -> None:
    found = found_in(
        tmp_path, [UnnormalisedInputs(size=0.1)], digits(), tanh, optimizer=sgd(1e-6), batch=64
    )
    assert [one.threshold for one in found] == [0.1]


def scaled_targets(scale: float, shift: float = 0.0) -> Data:
    """Return patients with targets of variance 1, scaled and shifted."""
    data = diabetes()
    mean, std = data.y.mean(), data.y.std()
    return replace(
        data,
        y=(data.y - mean) / std * scale + shift,
        y_eval=(data.y_eval - mean) / std * scale + shift,
    )


def of_targets(path: Path, data: Data, optimizer: Callable[[nn.Module], object]) -> list[Finding]:
    """Return the findings in a regression."""
    return found_in(
        path,
        [UnnormalisedTargets()],
        data,
        network(10, 1),
        loss=nn.MSELoss(),
        optimizer=optimizer,  # type: ignore[arg-type]
        steps=400,
    )


@pytest.mark.thorough
def test_unreachable_targets_are_reported_with_their_normalisation(tmp_path: Path) -> None:
    warning, finding = of_targets(tmp_path, scaled_targets(8e3, 2e4), adam(3e-3))
    assert (warning.severity, finding.severity) == ("warning", "stop")
    assert finding.fault == "unnormalised_targets"
    assert finding.evidence["mean"] == pytest.approx(2e4, rel=0.2)
    assert finding.evidence["std"] == pytest.approx(8e3, rel=0.4)
    assert finding.evidence["predictions_rms"] < 1e3
    assert "targets - " in finding.remedy


def of_single_rows(directory: Path, targets_of: Callable[[int, float], float]) -> list[Finding]:
    """Return the findings about targets of batches of one row, in a training that learns nothing.

    Args:
        directory: directory of the run.
        targets_of: returns the target from the step and the sum of the inputs.
    """
    generator = np.random.default_rng(0)
    records = []
    for step in range(0, 2000, 5):
        inputs = generator.normal(size=(1, 3))
        targets = np.array([[targets_of(step, float(inputs.sum()))]])
        tensors = {
            "model_inputs/x": inputs,
            "labels/MSELoss": targets,
            "predictions/MSELoss": np.zeros((1, 1)),
        }
        records.append(step_record(step, scalars={"losses/MSELoss": 6e8}, tensors=tensors))
    return judge(make_run(directory, records, total_steps=2000), [UnnormalisedTargets()])


def test_targets_of_single_rows_are_reported_with_the_mean_of_all(tmp_path: Path) -> None:
    *_, finding = of_single_rows(tmp_path / "run", lambda _, total: 2e4 + 8e3 * total)
    assert finding.evidence["mean"] == pytest.approx(2e4, rel=0.1)
    assert finding.evidence["std"] == pytest.approx(8e3 * 3**0.5, rel=0.2)


@pytest.mark.parametrize(("first", "last"), [(500, 500), (0, 100)])
def test_outliers_among_single_rows_are_not_their_scale(
    first: int, last: int, tmp_path: Path
) -> None:
    def targets_of(step: int, total: float) -> float:
        return 1e4 * total if first <= step <= last else total

    assert of_single_rows(tmp_path / "run", targets_of) == []


@pytest.mark.thorough
def test_targets_that_the_predictions_reach_soon_are_not_warned_of(tmp_path: Path) -> None:
    assert not of_targets(tmp_path, scaled_targets(1.5e5, 3.6e5), adam(1.0))


@pytest.mark.thorough
def test_targets_with_a_diverging_loss_are_reported_immediately(tmp_path: Path) -> None:
    (finding,) = of_targets(tmp_path, scaled_targets(1e4), sgd(0.1))
    assert finding.step <= 30
    assert "not finite" in finding.seen


@pytest.mark.thorough
def test_tiny_targets_are_reported(tmp_path: Path) -> None:
    (finding,) = of_targets(tmp_path, scaled_targets(1e-4), sgd(1e-3))
    assert finding.threshold == 0.01
    assert finding.value < 0.01


@pytest.mark.thorough
@pytest.mark.parametrize(("scale", "shift", "rate"), [(77.0, 152.0, 3e-2), (1.0, 0.0, 1e-7)])
def test_learned_or_usual_targets_are_ignored(
    scale: float, shift: float, rate: float, tmp_path: Path
) -> None:
    assert of_targets(tmp_path, scaled_targets(scale, shift), adam(rate)) == []


class Tokens(nn.Module):
    """A linear layer on the mean of embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(17, 8)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.embedding(x).mean(1))
        return out


def padded(x: Tensor, places: int) -> Tensor:
    """Return the pixels of a digit as 16 tokens with padding."""
    tokens = (x[:, 24:40] * 15).long() + 1
    return torch.cat([tokens, torch.zeros(len(x), places, dtype=torch.long)], 1)


def test_mostly_padding_is_a_hint(tmp_path: Path) -> None:
    data = with_inputs(lambda x: padded(x, 24))
    (finding,) = found_in(tmp_path, [TokenRatio()], data, Tokens, steps=60, batch=64)
    assert (finding.fault, finding.severity) == ("token_ratio", "info")
    assert finding.evidence["token"] == 0
    assert finding.value == pytest.approx(24 / 40)


def test_some_padding_is_ignored(tmp_path: Path) -> None:
    data = with_inputs(lambda x: padded(x, 4))
    assert found_in(tmp_path, [TokenRatio()], data, Tokens, steps=60, batch=64) == []


class Pixels(nn.Module):
    """A network with integer inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x / 16)
        return out


def test_integers_without_an_embedding_are_no_tokens(tmp_path: Path) -> None:
    data = with_inputs(lambda x: (x * 16).long() * (x > 0.8))
    assert found_in(tmp_path, [TokenRatio()], data, Pixels, steps=60, batch=64) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UnnormalisedInputs(size=0.0), "size = 0"),
        (lambda: UnnormalisedTargets(size=1.0), "size = 1"),
        (lambda: CorruptInputs(constant=1.0), "constant = 1"),
        (lambda: CorruptInputs(order=0.0), "order = 0"),
        (lambda: DataLeakage(share=0.0), "share = 0"),
        (lambda: TokenRatio(share=1.0), "share = 1"),
    ],
)
def test_invalid_parameters_raise(make: type[Rule], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(("of", "rules"), [("state", []), ("rows", ["unnormalised_inputs"])])
def test_a_state_that_a_loop_passes_on_is_no_data(
    of: str, rules: list[str], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model, loss, judges = nn.LSTM(3, 4, batch_first=True), nn.MSELoss(), [UnnormalisedInputs()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # As after too long steps; the first call has no state.
    exploded = (1e3 * torch.randn(1, 8, 4), 1e3 * torch.randn(1, 8, 4))
    with Hook(tmp_path / "run", collections=capture_for(judges).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for step in range(11):
            rows = torch.randn(8, 5, 3) * (1e3 if of == "rows" else 1.0)
            outputs, _ = model(rows, exploded if of == "state" and step else None)
            optimizer.zero_grad()
            # The rule answers at once when the loss is not finite.
            loss(outputs, torch.full_like(outputs, 1.0 if step < 10 else math.inf)).backward()
            optimizer.step()
    found = judge(open_run(tmp_path / "run"), judges)
    assert [one.rule for one in found if one.statistic] == rules
