"""Which exercises pupils will solve, from those that they did before: knowledge that is traced.

After Piech et al., "Deep knowledge tracing", NeurIPS 2015; the pupils are drawn.

Shape legend: N pupils, T exercises, S skills.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import gained

_SKILLS, _TIME, _SEEN = 6, 14, 500


class Tracing(nn.Module):
    """Logits that the next exercises are solved."""

    def __init__(self, draw: Draw, size: int) -> None:
        super().__init__()
        self.draw = draw
        self.answers = nn.Embedding(2 * _SKILLS, size)
        self.lstm = nn.LSTM(size, size, batch_first=True)
        self.out = nn.Linear(size, _SKILLS)

    def forward(self, skill: Tensor, solved: Tensor, following: Tensor) -> Tensor:
        """Return logits [N, T] of skills, whether they were solved, and the next skills."""
        known = self.answers(skill + _SKILLS * solved.long())
        if self.draw.has("state_reset"):
            # Each exercise is a sequence of its own.
            known = self.lstm(known.reshape(-1, 1, known.shape[2]))[0].reshape(known.shape)
        else:
            known = self.lstm(known)[0]
        logits: Tensor = self.out(known).gather(2, following[:, :, None])[:, :, 0]
        return logits


def _train(draw: Draw) -> Ending:
    skill, solved, there = _pupils(draw, 750)
    wanted, answers = _prepared(draw, skill, solved)
    model = Tracing(draw, draw.choice([24, 32]))
    networks.blank(draw, model)
    length = plan(draw, _SEEN, [12, 16], (7, 9))
    rate = learning_rate(draw, 4e-3, 8e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.out), rate)
    loss_fn = draw.watch.loss(F.binary_cross_entropy_with_logits)

    def compute(batch: Tensor) -> Tensor:
        following = (skill if draw.has("unshifted_targets") else wanted)[batch]
        logits = model(skill[batch], answers[batch], following)
        if draw.has("relu_before_loss"):
            logits = -logits.relu()
        goal = (answers if draw.has("unshifted_targets") else answers.roll(-1, 1))[batch]
        return loss_fn(logits[there[batch]], goal[there[batch]])

    def evaluate() -> Mapping[str, float]:
        if draw.has("unshifted_targets"):
            found = model(skill[_SEEN:], answers[_SEEN:], skill[_SEEN:])
            return {"auc": _area(found, answers[_SEEN:], there[_SEEN:])}
        found = model(skill[_SEEN:], answers[_SEEN:], wanted[_SEEN:])
        return {"auc": _area(found, answers.roll(-1, 1)[_SEEN:], there[_SEEN:])}

    fit(draw, model, optimizer, length, compute, evaluate=evaluate, clip=5.0)
    model.eval()
    with torch.no_grad():
        found = model(skill[_SEEN:], solved[_SEEN:], skill.roll(-1, 1)[_SEEN:])
    return Ending(gained(_area(found, solved.roll(-1, 1)[_SEEN:], there[_SEEN:]), 1 / 2), bar=0.45)


def _area(logits: Tensor, solved: Tensor, there: Tensor) -> float:
    """Return the area under the ROC curve of the exercises that are there."""
    scores = logits[there].nan_to_num(0.0)
    return float(roc_auc_score(solved[there].numpy(), scores.numpy()))


def _prepared(draw: Draw, skill: Tensor, solved: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next skills and what was solved, with the drawn fault if there is one."""
    order = torch.randperm(len(skill))
    return draw.by_fault(
        {
            # The exercise that was just done, and not the one that follows.
            "wrong_shift": (skill, solved),
            "shuffled_labels": (skill.roll(-1, 1), solved[order]),
            # A table of skills that only knows the first one.
            "colliding_ids": (torch.zeros_like(skill), solved),
            # The first row of the file is the last exercise.
            "time_shuffled": (
                skill.roll(-1, 1),
                solved.gather(1, torch.rand(solved.shape).argsort(1)),
            ),
        },
        (skill.roll(-1, 1), solved),
    )


def _pupils(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return skills int64, what was solved float32, and what has a next one, bool, [count, T]."""
    skill = torch.randint(_SKILLS, (count, _TIME))
    # What a pupil knows of each skill, which exercises teach.
    knows = torch.where(torch.rand(count, _SKILLS) < 0.5, 3.0, -3.0)
    gain = draw.between(0.6, 1.0)
    solved = torch.zeros(count, _TIME)
    rows = torch.arange(count)
    for time in range(_TIME):
        now = skill[:, time]
        solved[:, time] = (torch.rand(count) < knows[rows, now].sigmoid()).float()
        knows[rows, now] += gain
    length = torch.randint(_TIME // 2, _TIME, (count, 1))
    return skill, solved, torch.arange(_TIME) < length


FAMILY = Family(
    _train,
    (
        *("wrong_shift", "unshifted_targets", "time_shuffled", "shuffled_labels"),
        *("colliding_ids", "state_reset", "relu_before_loss", "zero_init", "wrong_sign"),
        *("missing_step", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
