"""Rules about lost information in inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.rules.data.trainings import found_in, network, with_inputs
from tests.rules.trainings import Data, adam, digits, sgd
from vinedresser.rules.data.corrupt_inputs import CorruptInputs
from vinedresser.rules.data.row_sizes import RowSizes
from vinedresser.rules.signals.rows import RowPositions
from vinedresser.store.finding import Finding


def corrupt(path: Path, data: Data, **options: object) -> list[Finding]:
    """Return the findings about inputs."""
    return found_in(path, [CorruptInputs()], data, network(), batch=64, **options)  # type: ignore[arg-type]


@pytest.mark.thorough
def test_wrong_axis_order_is_found(tmp_path: Path) -> None:
    (finding,) = corrupt(tmp_path, digits(), prepare=lambda x: x.T.reshape(x.shape))
    assert (finding.fault, finding.severity) == ("corrupt_inputs", "warning")
    assert finding.statistic == "order"
    assert finding.value > 0.8
    assert "permute" in finding.remedy


class Windows(nn.Module):
    """Scores of windows of eight rows of pixels, read by a recurrent layer."""

    def __init__(self, *, mixed: bool) -> None:
        super().__init__()
        self.read = nn.GRU(8, 16, batch_first=True)
        self.scores = nn.Linear(16, 10)
        self.mixed = mixed

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.read(x.view(-1, 8, 8))
        # The mean over the batch, and not over the window.
        told = states.mean(0)[torch.arange(len(x)) % 8] if self.mixed else states.mean(1)
        scores: Tensor = self.scores(told)
        return scores


@pytest.mark.thorough
@pytest.mark.parametrize("mixed", [False, True])
def test_outputs_that_belong_to_positions_in_the_batch(*, mixed: bool, tmp_path: Path) -> None:
    found = found_in(
        tmp_path,
        [CorruptInputs()],
        digits(),
        lambda: Windows(mixed=mixed),
        optimizer=adam(1e-3),
        steps=80,
    )
    assert [one.fault for one in found] == (["corrupt_inputs"] if mixed else [])
    assert all(one.step == 55 and "batch axis" in one.cause for one in found)


def test_zero_inputs_are_found(tmp_path: Path) -> None:
    (finding,) = corrupt(tmp_path, digits(), prepare=torch.zeros_like)
    assert "are zero" in finding.seen


@pytest.mark.thorough
def test_a_row_copied_to_the_whole_batch_is_found(tmp_path: Path) -> None:
    (finding,) = corrupt(tmp_path, digits(), prepare=lambda x: x[:1].expand_as(x))
    assert "the same for all rows of a batch" in finding.seen
    # It is certain, whatever the outcome.
    assert finding.step <= 50


@pytest.mark.thorough
@pytest.mark.parametrize("scale", [100.0, 0.01])
def test_evaluated_rows_of_another_size_are_found(scale: float, tmp_path: Path) -> None:
    data = digits()
    (finding,) = corrupt(tmp_path, replace(data, x_eval=data.x_eval * scale), every=50)
    assert (finding.fault, finding.severity) == ("corrupt_inputs", "warning")
    assert finding.value == pytest.approx(finding.threshold * scale, rel=0.1)
    assert "prepared in different ways" in finding.cause
    assert finding.step <= 100


@pytest.mark.thorough
def test_evaluated_rows_of_another_size_that_are_predicted_well_are_ignored(tmp_path: Path) -> None:
    data = digits()
    data = replace(data, x_eval=data.x_eval * 100)
    layers = lambda: nn.Sequential(nn.LayerNorm(64), network()())  # noqa: E731
    assert found_in(tmp_path, [CorruptInputs()], data, layers, batch=64, every=50) == []


@pytest.mark.thorough
@pytest.mark.parametrize("scale", [0.5, pytest.param(1.0, marks=pytest.mark.slow), 2.0])
def test_evaluated_rows_of_similar_size_are_ignored(scale: float, tmp_path: Path) -> None:
    data = digits()
    assert corrupt(tmp_path, replace(data, x_eval=data.x_eval * scale), every=50) == []


def test_rows_with_noise_of_many_strengths_have_no_other_size() -> None:
    rng = np.random.default_rng(0)
    sizes = RowSizes()
    for _ in range(10):
        sizes.train(
            {"inputs/Denoiser": rng.normal(size=(64, 9)) * np.exp(rng.normal(size=(64, 1)))}
        )
        sizes.evaluate({"inputs/Denoiser": rng.normal(size=(64, 9)) * 8.0})
    assert sizes.symptom() is None


@pytest.mark.thorough
def test_zero_inputs_that_are_also_the_targets_are_found(tmp_path: Path) -> None:
    data = digits()
    zeros = torch.zeros_like(data.x)
    data = replace(data, x=zeros, y=zeros)
    found = found_in(
        tmp_path, [CorruptInputs()], data, network(64, 64), loss=nn.MSELoss(), batch=64
    )
    assert [one.fault for one in found] == ["corrupt_inputs"]


@pytest.mark.thorough
def test_mostly_constant_features_are_found(tmp_path: Path) -> None:
    data = with_inputs(lambda x: torch.cat([torch.full((len(x), 60), 7.0), x[:, :4]], 1))
    (finding,) = corrupt(tmp_path, data)
    assert finding.statistic == "share"
    assert finding.value > 0.9


def words(rows: int, distinct: int) -> Data:
    """Return rows of four one-hot words of a thousand, whose frequencies are Zipf's."""
    generator = np.random.default_rng(0)
    share = 1 / np.arange(1, 1001)
    drawn = generator.choice(1000, size=(distinct, 4), p=share / share.sum())
    hot = nn.functional.one_hot(torch.as_tensor(drawn), 1000).flatten(1).float()
    x = hot[torch.arange(rows) % distinct]
    y = torch.as_tensor(generator.integers(0, 10, rows))
    return Data(x, y, x[:64], y[:64])


@pytest.mark.thorough
@pytest.mark.parametrize("distinct", [pytest.param(600, marks=pytest.mark.slow), 30])
def test_words_that_have_not_occurred_are_ignored(distinct: int, tmp_path: Path) -> None:
    data = words(600, distinct)
    assert (data.x == data.x[0]).all(0).float().mean() > 0.75
    rules = [CorruptInputs(constant=0.75)]
    model, optimizer = network(4000), sgd(1e-6)
    assert found_in(tmp_path, rules, data, model, batch=64, optimizer=optimizer) == []


@pytest.mark.thorough
def test_pixels_under_a_mask_and_a_clip_are_found(tmp_path: Path) -> None:
    # Most of those that are left are zero, too, but no sparse features.
    data = with_inputs(lambda x: (x - 0.7).clip(min=0) * (torch.arange(64) % 8 == 3))
    assert (data.x != 0).float().mean() < 0.1
    rules, model = [CorruptInputs(constant=0.8)], network()
    (finding,) = found_in(tmp_path, rules, data, model, batch=64, optimizer=sgd(1e-6))
    assert finding.statistic == "share"


def test_valid_inputs_without_learning_are_ignored(tmp_path: Path) -> None:
    assert corrupt(tmp_path, digits(), optimizer=sgd(1e-6)) == []


def test_a_repeated_batch_has_no_position_effect(tmp_path: Path) -> None:
    rows = torch.arange(64)
    found = corrupt(tmp_path, digits(), optimizer=sgd(1e-6), order=iter([rows] * 300))
    assert found == []


def test_position_effect_matches_analysis_of_variance() -> None:
    generator = np.random.default_rng(0)
    batches = generator.normal(size=(9, 12, 30)) + 0.2 * np.arange(12)[None, :, None] + 1e4
    positions = RowPositions()
    for rows in batches:
        positions.add(rows)
    expected = []
    for figures in (batches.mean(2), batches.std(2)):
        between = 9 * ((figures.mean(0) - figures.mean()) ** 2).sum() / 11
        within = ((figures - figures.mean(0)) ** 2).sum() / (12 * 8)
        expected.append((between - within) / (between + 8 * within))
    assert positions.explained() == pytest.approx(max(expected), rel=1e-6)
    assert max(expected) > 0.5 > min(expected)
