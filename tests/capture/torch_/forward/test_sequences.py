"""Recurrent models that a loop calls place by place have labels and predictions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from vinedresser import Hook, open_run
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.reading.reader import Run

ALL = {name: SaveConfig(every=1) for name in ("predictions", "labels", "losses")}
PLACES, ROWS, LETTERS = 4, 3, 5

_Seen = list[tuple[Tensor, Tensor]]
_Loss = Callable[..., Tensor]
_Step = Callable[[nn.Module, Tensor, _Loss, _Seen], Tensor]


class Cell(nn.Module):
    """Returns scores of the next letter and the next hidden state."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(LETTERS, 6)
        self.out = nn.Linear(6, LETTERS)

    def forward(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.cell(x, hidden)
        return self.out(hidden), hidden


def letters(step: int) -> Tensor:
    """Return a batch of words [ROWS, PLACES + 1]."""
    return torch.randint(
        0, LETTERS, (ROWS, PLACES + 1), generator=torch.Generator().manual_seed(step)
    )


def outputs(model: nn.Module, words: Tensor) -> list[Tensor]:
    hidden, found = torch.zeros(ROWS, 6), []
    for place in range(PLACES):
        scores, hidden = model(F.one_hot(words[:, place], LETTERS).float(), hidden)
        found.append(scores)
    return found


def at_the_end(model: nn.Module, words: Tensor, loss: _Loss, seen: _Seen) -> Tensor:
    scores = outputs(model, words)[-1]
    seen.append((scores, words[:, -1]))
    return loss(scores, words[:, -1])


def stacked(model: nn.Module, words: Tensor, loss: _Loss, seen: _Seen) -> Tensor:
    scores, labels = torch.cat(outputs(model, words)), words[:, 1:].T.reshape(-1)
    seen.append((scores, labels))
    return loss(scores, labels)


def summed(model: nn.Module, words: Tensor, loss: _Loss, seen: _Seen) -> Tensor:
    parts = outputs(model, words)
    seen.append((torch.cat(parts), words[:, 1:].T.reshape(-1)))
    total = sum(loss(one, words[:, place + 1]) for place, one in enumerate(parts))
    assert isinstance(total, Tensor)
    return total / PLACES


def by_hand(model: nn.Module, words: Tensor, _: _Loss, seen: _Seen) -> Tensor:
    parts = outputs(model, words)
    targets = [F.one_hot(words[:, place + 1], LETTERS) for place in range(PLACES)]
    seen.append((torch.cat(parts), torch.cat(targets)))
    total = torch.zeros(())
    for one, target in zip(parts, targets, strict=True):
        total = total + ((one - target) ** 2).mean()
    return total


def train(path: Path | None, step_loss: _Step, loss: _Loss) -> tuple[list[Tensor], _Seen]:
    torch.manual_seed(0)
    model, seen = Cell(), _Seen()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    module = loss if isinstance(loss, nn.Module) else None
    hook = None if path is None else Hook(path, collections=ALL).watch(model, module, optimizer)
    for step in range(3):
        optimizer.zero_grad()
        step_loss(model, letters(step), loss, seen).backward()
        optimizer.step()
    if hook is not None:
        hook.close()
        assert hook.problems == []
    return [parameter.detach() for parameter in model.parameters()], seen


def compared(run: Run, step: int) -> list[Any]:
    return [
        run.tensor(run.tensor_names(collection=kind)[0]).value(step)
        for kind in ("predictions", "labels")
    ]


@pytest.mark.parametrize(
    ("step_loss", "loss"),
    [
        (at_the_end, nn.CrossEntropyLoss()),
        (at_the_end, F.cross_entropy),
        (stacked, nn.CrossEntropyLoss()),
        (stacked, F.cross_entropy),
        (summed, F.cross_entropy),
        (by_hand, F.mse_loss),
    ],
)
def test_labels_and_predictions_are_those_of_all_places(
    tmp_path: Path, step_loss: _Step, loss: _Loss
) -> None:
    plain, _ = train(None, step_loss, loss)
    hooked, seen = train(tmp_path / "run", step_loss, loss)
    assert all(torch.equal(one, other) for one, other in zip(plain, hooked, strict=True))
    run = open_run(tmp_path / "run")
    for step, (scores, labels) in enumerate(seen):
        predictions, truth = compared(run, step)
        np.testing.assert_array_equal(truth, labels.numpy())
        of_classes = loss is F.cross_entropy
        expected = scores.log_softmax(1) if of_classes else scores
        np.testing.assert_allclose(predictions, expected.detach().numpy(), atol=1e-6)


def test_an_evaluation_has_those_of_its_first_sequence(tmp_path: Path) -> None:
    model, loss = Cell().eval(), nn.CrossEntropyLoss()
    with Hook(tmp_path / "run", collections=ALL).watch(model, loss), torch.no_grad():
        for step in range(2):
            loss(outputs(model, letters(step))[-1], letters(step)[:, -1])
    labels = open_run(tmp_path / "run").tensor("labels/CrossEntropyLoss")
    np.testing.assert_array_equal(labels.value(0, "eval"), letters(0)[:, -1].numpy())


def two_views(model: nn.Module) -> Tensor:
    first, second = (model(torch.randn(ROWS, LETTERS)) for _ in range(2))
    return F.mse_loss(first, second.detach())


def two_judgements(model: nn.Module) -> Tensor:
    real, generated = (model(torch.randn(ROWS, LETTERS)) for _ in range(2))
    return F.mse_loss(real, torch.ones(ROWS, 1)) + F.mse_loss(generated, torch.zeros(ROWS, 1))


def copied_state(model: nn.Module) -> Tensor:
    first = model(torch.randn(ROWS, LETTERS))
    return F.mse_loss(model(first.clone()), torch.ones(ROWS, LETTERS))


@pytest.mark.parametrize("loss_of", [two_views, two_judgements, copied_state])
def test_several_forwards_that_are_no_sequence_have_none(
    tmp_path: Path, loss_of: Callable[[nn.Module], Tensor]
) -> None:
    torch.manual_seed(0)
    model = nn.Linear(LETTERS, 1 if loss_of is two_judgements else LETTERS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Hook(tmp_path / "run", collections=ALL).watch(model, optimizer=optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(model).backward()
            optimizer.step()
    run = open_run(tmp_path / "run")
    assert run.tensor_names() == []
    assert len(run.scalars("losses")["losses/loss"].values) == 3
