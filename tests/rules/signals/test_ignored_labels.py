"""Labels that losses ignore, such as those of padding and of unknown pixels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.losses.loss_identity import LossIdentities
from vinedresser.rules.signals.outcomes.baseline import Baseline
from vinedresser.store.finding import Finding
from vinedresser.testing.runs import make_run, step_record

_STEPS = 300
# The kind of each of sixteen words.
_KINDS = torch.randint(4, (16,), generator=torch.Generator().manual_seed(1))


def tagged(
    directory: Path, ignored: int, spoil: Callable[[Tensor], Tensor], *, flat: bool
) -> list[Finding]:
    """Learn the kinds of words in sentences that are padded to six, and judge.

    Args:
        directory: directory of the run.
        ignored: label of what is no word.
        spoil: changes the labels.
        flat: whether the loss gets one row for each word, not for each sentence.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 4))
    loss = nn.CrossEntropyLoss(ignore_index=ignored)
    optimizer, rule = torch.optim.Adam(model.parameters(), lr=0.02), Underfitting()
    hook = Hook(directory, collections=capture_for([rule]).collections, total_steps=_STEPS)
    with hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for _ in range(_STEPS):
            words = torch.randint(16, (16, 6))
            there = torch.arange(6) < torch.randint(2, 7, (16, 1))
            kinds = torch.where(there, spoil(_KINDS[words]), ignored)
            scores = model(words)
            optimizer.zero_grad()
            if flat:
                loss(scores.flatten(0, 1), kinds.flatten()).backward()
            else:
                loss(scores.transpose(1, 2), kinds).backward()
            optimizer.step()
    return judge(open_run(directory), [rule])


def shuffled(kinds: Tensor) -> Tensor:
    """Give each word the kind of another."""
    return kinds.flatten()[torch.randperm(kinds.numel())].view(kinds.shape)


@pytest.mark.thorough
@pytest.mark.parametrize(("ignored", "flat"), [(-100, True), (255, False), (4, True)])
def test_padded_sentences_that_are_learned(ignored: int, *, flat: bool, tmp_path: Path) -> None:
    assert tagged(tmp_path / "run", ignored, Tensor.clone, flat=flat) == []


@pytest.mark.thorough
@pytest.mark.parametrize(("ignored", "flat"), [(-100, True), (255, False)])
def test_padded_sentences_with_labels_of_other_words(
    ignored: int, *, flat: bool, tmp_path: Path
) -> None:
    (finding,) = tagged(tmp_path / "run", ignored, shuffled, flat=flat)
    assert finding.severity == "stop"
    assert "accuracy" in finding.seen


def test_rows_keep_their_places_beside_the_inputs(tmp_path: Path) -> None:
    """Four labels that count beside four rows of inputs are not the labels of those rows."""
    generator = np.random.default_rng(0)
    records = []
    for step in range(0, 400, 5):
        labels = np.full((8, 3), -100)
        labels[::2, 1] = generator.integers(5, size=4)
        tensors = {
            "model_inputs/x": generator.normal(size=(4, 2)),
            "labels/loss": labels,
            "predictions/loss": generator.normal(size=(8, 3, 5)),
        }
        records.append(step_record(step, tensors=tensors, scalars={"losses/loss": 1.6}))
    batches, baseline = Batches(), Baseline()
    for seen in make_run(tmp_path / "run", records, framework="torch").follow():
        for signal in (batches, baseline.batches, baseline):
            signal.update(seen)
        (counted,), (paired,) = batches.compared, batches.paired
        assert (counted.labels.shape, counted.predictions.shape) == ((4,), (4, 5))
        assert (paired.labels.shape, paired.predictions.shape) == ((8, 3), (8, 3, 5))
        assert np.array_equal(counted.labels, paired.labels[::2, 1])
    assert baseline.gain("loss") is None
    assert baseline.fitted_rows("loss") is None


@pytest.mark.parametrize(
    ("labels", "function", "counted"),
    [
        # Minus one is a class, for all that is known of the loss.
        ([-1, 1, 1, -1], None, 4),
        ([-1, 1, 1, -1], "cross_entropy", 2),
        ([-100, 1, 1, 0], None, 3),
        ([0, 1, 1, 0], "cross_entropy", 4),
        ([2, 1, 1, 2], "mse_loss", 4),
    ],
)
def test_labels_that_count(
    labels: list[int], function: str | None, counted: int, tmp_path: Path
) -> None:
    tensors = {"labels/loss": np.array(labels), "predictions/loss": np.zeros((4, 2))}
    losses = {} if function is None else {"loss": {"function": function}}
    records = [step_record(0, tensors=tensors, scalars={"losses/loss": 0.7})]
    run = make_run(tmp_path / "run", records, framework="torch", losses=losses)
    batches = Batches()
    batches.on_record(run.info)
    for step in run.follow():
        batches.update(step)
    assert [len(one.labels) for one in batches.compared] == [counted]


def test_a_function_is_identified_by_the_labels_that_count(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    records = []
    for step in range(0, 20, 5):
        scores = torch.randn(16, 5, generator=generator)
        labels = torch.randint(5, (16,), generator=generator)
        labels[torch.rand(16, generator=generator) < 0.4] = -100
        value = float(nn.functional.cross_entropy(scores, labels))
        tensors = {"labels/loss": labels.numpy(), "predictions/loss": scores.numpy()}
        records.append(step_record(step, tensors=tensors, scalars={"losses/loss": value}))
    identities = LossIdentities()
    for seen in make_run(tmp_path / "run", records).follow():
        identities.batches.update(seen)
        identities.update(seen)
    identity = identities.of("loss")
    assert identity is not None
    assert identity[:3] == ("cross_entropy", "logits", "mean")
