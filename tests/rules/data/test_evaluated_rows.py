"""Evaluated rows that differ from the training rows, and texts of which only one is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.rules.data.trainings import found_in, network
from tests.rules.trainings import Data, diabetes, digits
from vinedresser.rules.data.corrupt_labels import CorruptLabels
from vinedresser.rules.losses.initial_loss import InitialLoss

KINDS, LENGTH = 12, 16


def mirrored(data: Data) -> Data:
    """Return data whose evaluated images are mirrored: some digits stay what they are."""
    return replace(data, x_eval=data.x_eval.reshape(-1, 8, 8).flip(2).flatten(1))


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [True, False])
def test_evaluated_rows_that_are_prepared_in_another_way(wrong: bool, tmp_path: Path) -> None:
    data = mirrored(digits()) if wrong else digits()
    found = found_in(tmp_path, [CorruptLabels()], data, network(), steps=400, every=40)
    assert [one.fault for one in found] == (["corrupt_inputs"] if wrong else [])
    if found:
        (finding,) = found
        assert (finding.severity, finding.step) == ("warning", 395)
        assert finding.value < 0.5 * finding.threshold


@pytest.mark.thorough
def test_a_model_that_memorises_few_noisy_rows_is_not_said_to_have_other_inputs(
    tmp_path: Path,
) -> None:
    """Simple models remove less than half of the error of these rows."""
    data, model = diabetes(), network(wide=10, inner=256, out=1)
    rules = [CorruptLabels()]
    assert found_in(tmp_path, rules, data, model, loss=nn.MSELoss(), steps=600, every=40) == []


class Chain(nn.Module):
    """Scores of the next token."""

    def __init__(self, size: float = 1.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(KINDS, 16)
        self.score = nn.Linear(16, KINDS)
        nn.init.normal_(self.embed.weight, std=size)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores float32 [N, 12, T] of tokens int64 [N, T]."""
        scores: Tensor = self.score(self.embed(x)).transpose(1, 2)
        return scores


def texts(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return tokens int64 [count, 16] and the next ones: in half of the places, the number + 1."""
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(KINDS, (count, LENGTH + 1), generator=generator)
    follows = torch.rand(count, LENGTH, generator=generator) < 0.7
    for place in range(LENGTH):
        after = (text[:, place] + 1) % KINDS
        text[:, place + 1] = torch.where(follows[:, place], after, text[:, place + 1])
    return text[:, :-1], text[:, 1:]


@pytest.mark.thorough
@pytest.mark.parametrize("wrong", [True, False])
def test_evaluated_texts_with_other_numbers_of_tokens(wrong: bool, tmp_path: Path) -> None:
    (x, y), (x_eval, y_eval) = texts(256, 0), texts(64, 1)
    order = torch.randperm(KINDS, generator=torch.Generator().manual_seed(0))
    data = Data(x, y, order[x_eval] if wrong else x_eval, order[y_eval] if wrong else y_eval)
    found = found_in(tmp_path, [CorruptLabels()], data, Chain, steps=500, every=50)
    assert [one.fault for one in found] == (["corrupt_labels"] if wrong else [])


@pytest.mark.parametrize("size", [1.0, 1000.0])
def test_a_first_loss_of_tokens_that_only_weights_explain(size: float, tmp_path: Path) -> None:
    (x, y), (x_eval, y_eval) = texts(64, 0), texts(8, 1)
    data = Data(x, y, x_eval, y_eval)
    found = found_in(tmp_path, [InitialLoss()], data, lambda: Chain(size), steps=20)
    assert [one.severity for one in found] == ["warning"] * (size > 1)
