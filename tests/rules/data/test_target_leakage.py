"""`target_leakage`: inputs that contain the targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.rules.data.trainings import found_in, network
from tests.rules.trainings import diabetes, digits
from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.leakage.future_tokens import TokenOffset
from vinedresser.rules.data.leakage.target_leakage import TargetLeakage
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding
from vinedresser.testing.runs import make_run, step_record

Batch = tuple[Tensor, Tensor]
LENGTH, KINDS, IGNORED, PADDING = 16, 20, -100, 20


def language(
    train: Callable[[Tensor], Batch], path: Path, *, flat: bool = True, skip: int = 0
) -> list[Finding]:
    """Return the findings in a language model of words that mostly count upwards.

    Args:
        train: returns inputs and targets of text, int64 [rows, positions].
        path: parent directory of the run.
        flat: give the loss [rows * positions] targets.
        skip: number of first positions that are left out of the loss.
    """
    torch.manual_seed(0)
    rule = TargetLeakage()
    model = nn.Sequential(nn.Embedding(KINDS + 1, 32), nn.ReLU(), nn.Linear(32, KINDS + 1))
    # No word of the text, unless it is padded.
    loss = nn.CrossEntropyLoss(ignore_index=PADDING if train is padded else IGNORED)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    with Hook(path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for _ in range(140):
            starts = torch.randint(KINDS, (8, 1))
            tokens = (starts + torch.arange(LENGTH + 1)) % KINDS
            inputs, targets = train(tokens)
            outputs, targets = model(inputs)[:, skip:], targets[:, skip:]
            optimizer.zero_grad()
            if flat:
                value = loss(outputs.reshape(-1, KINDS + 1), targets.reshape(-1))
            else:
                value = loss(outputs.transpose(1, 2), targets)
            value.backward()
            optimizer.step()
    return [one for one in judge(open_run(path / "run"), [rule]) if one.statistic]


def masked(tokens: Tensor) -> Batch:
    """Return tokens of which some are hidden, and all as targets."""
    hidden = torch.rand(tokens.shape) < 0.15
    return tokens.masked_fill(hidden, KINDS), tokens


def filled_in(tokens: Tensor) -> Batch:
    """Return tokens of which some are hidden, and those as targets."""
    hidden = torch.rand(tokens.shape) < 0.15
    return tokens.masked_fill(hidden, KINDS), tokens.masked_fill(~hidden, IGNORED)


def not_hidden(tokens: Tensor) -> Batch:
    """Return all tokens, and some of them as targets."""
    return tokens, filled_in(tokens)[1]


@pytest.mark.parametrize("flat", [True, False])
def test_targets_that_are_not_shifted(flat: bool, tmp_path: Path) -> None:
    (finding,) = language(lambda tokens: (tokens, tokens), tmp_path, flat=flat)
    assert (finding.fault, finding.severity) == ("data_leakage", "warning")
    assert "not shifted" in finding.cause
    assert finding.step < 60


def padded(tokens: Tensor) -> Batch:
    """Return text of any length as inputs and targets."""
    there = torch.arange(tokens.shape[1]) < torch.randint(8, LENGTH, (len(tokens), 1))
    text = torch.where(there, tokens, PADDING)
    return text, text


@pytest.mark.parametrize("flat", [True, False])
def test_padded_targets_that_are_not_shifted(flat: bool, tmp_path: Path) -> None:
    (finding,) = language(padded, tmp_path, flat=flat)
    assert (finding.fault, finding.severity) == ("data_leakage", "warning")


@pytest.mark.thorough
@pytest.mark.parametrize("flat", [True, False])
def test_masked_targets_that_are_not_hidden(flat: bool, tmp_path: Path) -> None:
    (finding,) = language(not_hidden, tmp_path, flat=flat)
    assert (finding.fault, finding.severity) == ("data_leakage", "warning")
    assert "not hidden" in finding.cause


@pytest.mark.parametrize("flat", [True, False])
def test_targets_that_are_shifted_twice(flat: bool, tmp_path: Path) -> None:
    (finding,) = language(lambda tokens: (tokens[:, :-2], tokens[:, 2:]), tmp_path, flat=flat)
    assert (finding.fault, finding.severity) == ("corrupt_labels", "warning")
    assert "tokens 2 positions later" in finding.seen
    assert finding.step < 60


@pytest.mark.thorough
@pytest.mark.parametrize(
    "train",
    [
        lambda tokens: (tokens[:, :-1], tokens[:, 1:]),
        masked,
        filled_in,
        lambda tokens: (tokens[:, 1:], tokens[:, :-1]),
        lambda tokens: (tokens, tokens.flip(1)),
    ],
    ids=["next", "masked", "filled in", "previous", "backwards"],
)
@pytest.mark.parametrize("flat", [True, False])
def test_other_targets(train: Callable[[Tensor], Batch], flat: bool, tmp_path: Path) -> None:
    # The next word is certain, so both models learn to predict it.
    assert language(train, tmp_path, flat=flat) == []


@pytest.mark.parametrize("flat", [True, False])
def test_first_tokens_without_a_loss(flat: bool, tmp_path: Path) -> None:
    """As of a prompt: all other targets are the next tokens."""
    train = lambda tokens: (tokens[:, :-1], tokens[:, 1:])  # noqa: E731
    assert language(train, tmp_path, flat=flat, skip=1) == []


def test_only_targets_among_the_inputs_are_counted() -> None:
    offset = TokenOffset()
    inputs = np.arange(192).reshape(48, 4)
    targets = np.full((48, 4), 999)
    targets[:, 0] = inputs[:, 3]
    offset.add(inputs, targets)
    # Of the other positions, nobody knows it.
    assert set(offset.possible) == {3}
    assert (offset.tokens, offset.known) == (48, None)
    for _ in range(3):
        offset.add(inputs, targets)
    assert (offset.tokens, offset.known) == (192, 3)


def test_inputs_whose_name_changes(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    records = []
    for step in range(4):
        text = generator.integers(9, size=(8, 9))
        tensors = {
            f"inputs/batch[{step // 2}]": text[:, :-1],
            "labels/loss": text[:, 1:],
            "predictions/loss": generator.random((8, 8, 9)),
        }
        records.append(step_record(5 * step, tensors=tensors, scalars={"losses/loss": 1.0}))
    run = make_run(tmp_path / "run", records)
    assert judge(run, [TargetLeakage()]) == []


class OwnLoss(nn.Module):
    """A model that shifts the labels and computes the loss itself, as those of transformers.

    Args:
        recent: it also reads the token before each one.
    """

    def __init__(self, *, recent: bool) -> None:
        super().__init__()
        self.words, self.recent = nn.Embedding(KINDS + 1, 32), recent
        self.out = nn.Linear(32, KINDS)

    def forward(self, input_ids: Tensor, labels: Tensor, before: Tensor | None = None) -> Tensor:
        """Return the loss."""
        inner = self.words(input_ids)
        if before is not None:
            inner = inner + self.words(before)
        logits = self.out(inner)[:, :-1].flatten(0, 1)
        return nn.functional.cross_entropy(logits, labels[:, 1:].flatten())


@pytest.mark.thorough
@pytest.mark.parametrize("recent", [False, True])
@pytest.mark.parametrize("twice", [False, True])
def test_models_that_shift_labels_themselves(twice: bool, recent: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    rule, model = TargetLeakage(), OwnLoss(recent=recent)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(60):
            text = (torch.randint(KINDS, (8, 1)) + torch.arange(LENGTH + 2)) % KINDS
            labels = text[:, 2:] if twice else text[:, 1:-1]
            before = {"before": text[:, :-2]} if recent else {}
            optimizer.zero_grad()
            model(text[:, 1:-1], labels=labels, **before).backward()
            optimizer.step()
    found = [one.seen for one in judge(open_run(tmp_path / "run"), [rule]) if one.statistic]
    assert ["2 positions later" in seen for seen in found] == [True] * twice


def with_column(column: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Return training and evaluation rows of digits with a column made from the labels."""
    data = digits()
    pairs = ((data.x, data.y), (data.x_eval, data.y_eval))
    return [torch.cat([x, column(y.float())[:, None]], 1) for x, y in pairs]


def test_a_column_that_is_the_class(tmp_path: Path) -> None:
    x, x_eval = with_column(lambda y: (y - 4.5) / 2.9)
    data = replace(digits(), x=x, x_eval=x_eval)
    (finding,) = found_in(tmp_path, [TargetLeakage()], data, network(65))
    assert finding.evidence["columns"] == [64]
    assert finding.fault == "data_leakage"


def test_columns_that_are_the_class_in_one_hot_form(tmp_path: Path) -> None:
    data = digits()
    parts = ((data.x, data.y), (data.x_eval, data.y_eval))
    x, x_eval = (torch.cat([x, nn.functional.one_hot(y, 10)], 1) for x, y in parts)
    found = found_in(tmp_path, [TargetLeakage()], replace(data, x=x, x_eval=x_eval), network(74))
    assert [one.evidence["columns"] for one in found] == [list(range(64, 74))]


def test_a_column_that_is_the_target_of_a_regression(tmp_path: Path) -> None:
    data = diabetes()
    y = (data.y - 152) / 77
    data = replace(data, x=torch.cat([data.x, y], 1), y=y)
    found = found_in(tmp_path, [TargetLeakage()], data, network(11, 1), loss=nn.MSELoss())
    assert [one.evidence["columns"] for one in found] == [[10]]


def test_a_column_that_tells_only_some_classes(tmp_path: Path) -> None:
    x, x_eval = with_column(lambda y: (y == 3).float())
    data = replace(digits(), x=x, x_eval=x_eval)
    assert found_in(tmp_path, [TargetLeakage()], data, network(65)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("inputs", [1, 2])
def test_a_line_without_noise_is_ignored(inputs: int, tmp_path: Path) -> None:
    x = torch.randn(400, inputs, generator=torch.Generator().manual_seed(0))
    data = replace(diabetes(), x=x, y=2 * x[:, :1] + 1)
    found = found_in(tmp_path, [TargetLeakage()], data, network(inputs, 1), loss=nn.MSELoss())
    assert found == []


def test_an_autoencoder_is_ignored(tmp_path: Path) -> None:
    data = digits()
    data = replace(data, y=data.x, y_eval=data.x_eval)
    found = found_in(tmp_path, [TargetLeakage()], data, network(64, 64), loss=nn.MSELoss())
    assert found == []
