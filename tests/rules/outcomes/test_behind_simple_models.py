"""Trainings that end certainly behind simple models on their own rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.store.finding import Finding

_STEPS, _ROWS, _FEATURES, _WORDS = 300, 600, 6, 20


class Reader(nn.Module):
    """A linear model that reads some columns only."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns
        self.linear = nn.Linear(columns, 1)

    def forward(self, x: Tensor) -> Tensor:
        read: Tensor = self.linear(x[:, : self.columns])
        return read


class Tagger(nn.Module):
    """A bag of words, of which the rest of the model sees a share."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.words = nn.EmbeddingBag(_WORDS, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.share * self.words(x))
        return scores.squeeze(1)


def trained(
    model: nn.Module, loss: nn.Module, x: Tensor, y: Tensor, directory: Path, *, steps: int = _STEPS
) -> list[Finding]:
    """Train, and judge; the expected number of steps is always 300."""
    torch.set_num_threads(1)
    rule, optimizer = Underfitting(), torch.optim.Adam(model.parameters(), lr=0.03)
    hook = Hook(directory, collections=capture_for([rule]).collections, total_steps=_STEPS)
    with hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for _ in range(steps):
            chosen = torch.randint(_ROWS, (64,))
            optimizer.zero_grad()
            loss(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
    return judge(open_run(directory), [rule])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("columns", "steps", "severities"),
    [(2, _STEPS, ["warning"]), (3, _STEPS, []), (2, 200, [])],
    ids=["a column is not read", "all are read", "ended early"],
)
def test_a_column_that_simple_models_read(
    columns: int, steps: int, severities: list[str], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    x = torch.randn(_ROWS, _FEATURES)
    y = x[:, :3].sum(1, keepdim=True) + 0.1 * torch.randn(_ROWS, 1)
    found = trained(Reader(columns), nn.MSELoss(), x, y, tmp_path / "run", steps=steps)
    assert [one.severity for one in found] == severities
    if found:
        assert "simple models reach" in found[0].seen
        assert found[0].cause.startswith("ridge regression")


class Untrained(nn.Module):
    """A linear model without a gradient, whose outputs are too high."""

    def __init__(self, offset: float) -> None:
        super().__init__()
        self.offset = offset
        self.linear = nn.Linear(_FEATURES, 1)
        nn.init.normal_(self.linear.weight, std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.linear(x).detach()
        return outputs + self.offset


@pytest.mark.thorough
@pytest.mark.parametrize(("offset", "found"), [(2.0, 1), (0.0, 0)], ids=["far", "near"])
def test_targets_of_which_a_constant_is_better(offset: float, found: int, tmp_path: Path) -> None:
    """The other task is learned, so the outcome is good."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(_ROWS, _FEATURES)
    y = x[:, :1] + x[:, 1:2]
    learns, other = nn.Linear(_FEATURES, 1), Untrained(offset)
    losses, rule = (nn.MSELoss(), nn.L1Loss()), Underfitting()
    optimizer = torch.optim.Adam(learns.parameters(), lr=0.03)
    hook = Hook(tmp_path / "run", collections=capture_for([rule]).collections, total_steps=_STEPS)
    with hook:
        hook.watch(learns, loss=losses[0], optimizer=optimizer)
        hook.watch(other, loss=losses[1], name="other")
        for _ in range(_STEPS):
            chosen = torch.randint(_ROWS, (64,))
            optimizer.zero_grad()
            first = losses[0](learns(x[chosen]), y[chosen])
            (first + losses[1](other(x[chosen]), y[chosen])).backward()
            optimizer.step()
    findings = judge(open_run(tmp_path / "run"), [rule])
    assert [finding.severity for finding in findings] == ["warning"] * found
    assert all(finding.cause.startswith("a constant predicts") for finding in findings)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("share", "severities"), [(0.0, ["stop"]), (1.0, [])], ids=["not read", "read"]
)
def test_words_that_simple_models_read(share: float, severities: list[str], tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randint(_WORDS, (_ROWS, 10))
    y = (x < 3).sum(1).clamp(max=1).float()
    found = trained(Tagger(share), nn.BCEWithLogitsLoss(), x, y, tmp_path / "run")
    assert [one.severity for one in found] == severities
    assert all("simple models reach" in one.seen for one in found)
