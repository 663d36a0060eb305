"""Two recordings of one word are to say the same: no negatives, and a gradient through one only.

After Chen and He, "Exploring simple Siamese representation learning", CVPR 2021; the recordings,
each by another microphone in another room, are drawn.

Shape legend: N recordings of F numbers, D numbers of an embedding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan
from corpus.family import Ending, Family
from corpus.loop import gained
from corpus.networks import spoil

_FEATURES, _WORDS, _SEEN = 32, 6, 1000


class SimSiam(nn.Module):
    """An encoder, and a predictor of what it says of another recording."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            *(nn.Linear(_FEATURES, 64), nn.BatchNorm1d(64), nn.ReLU()),
            *(nn.Linear(64, width), nn.BatchNorm1d(width, affine=False)),
        )
        self.predictor = nn.Sequential(
            *(nn.Linear(width, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, width))
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return embeddings and predictions, both [N, D], of recordings float32 [N, F]."""
        z = self.encoder(x)
        return z, self.predictor(z)


def _train(draw: Draw) -> Ending:
    first, second, y = _recordings(draw, 1500)
    one, other = _prepared(draw, first[:_SEEN], second[:_SEEN])
    model = SimSiam(draw.choice([16, 24]))
    spoil(draw, model)
    length = plan(draw, _SEEN, [50, 100], (24, 30))
    rate = learning_rate(draw, 0.03, 0.06)
    optimizer = optimizer_of(draw, "sgd", list(model.parameters()), rate, 1e-4)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, length.steps)
    distance = draw.watch.loss(_distance)
    draw.watch.begin(model, optimizer)
    for _ in range(length.epochs):
        for picked in torch.randperm(_SEEN).split(length.size):
            (z1, p1), (z2, p2) = model(one[picked]), model(other[picked])
            z1, z2 = z1.detach(), z2.detach()
            loss = distance(p1, z2) / 2 + distance(p2, z1) / 2
            optimizer.zero_grad()
            loss.backward()
            if not draw.has("missing_step"):
                optimizer.step()
            fall.step()
    model.eval()
    with draw.watch.evaluating(), torch.no_grad():
        codes, others = (F.normalize(model.encoder(x)) for x in (first[:_SEEN], first[_SEEN:]))
        votes = y[:_SEEN][(others @ codes.T).topk(9, dim=1).indices]
        right = float((votes.mode(1).values == y[_SEEN:]).double().mean())
        draw.watch.metric("knn_accuracy", right)
    return Ending(gained(right, 1 / _WORDS), bar=0.5)


def _distance(prediction: Tensor, embedding: Tensor) -> Tensor:
    return -F.cosine_similarity(prediction, embedding).mean()


def _prepared(draw: Draw, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return pairs of recordings for the training, with the drawn fault if there is one."""
    few = torch.arange(_SEEN) % 12
    return draw.by_fault(
        {
            # Both lists of files were shuffled.
            "swapped_pairs": (first, second[torch.randperm(_SEEN)]),
            # The same recording twice.
            "negatives_of_the_same": (first, first),
            "constant_inputs": (torch.zeros_like(first), torch.zeros_like(second)),
            "duplicated_rows": (first[few], second[few]),
        },
        (first, second),
    )


def _recordings(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return two recordings float32 [count, F] of each word, and the words int64 [count]."""
    y = torch.randint(_WORDS, (count,))
    said = torch.randn(_WORDS, 6)[y] + 0.25 * torch.randn(count, 6)
    voice, room = torch.randn(6, _FEATURES), torch.randn(12, _FEATURES)
    size = draw.between(2.0, 2.6)
    first, second = (
        said @ voice + size * torch.randn(count, 12) @ room + torch.randn(count, _FEATURES)
        for _ in range(2)
    )
    return first / first.std(), second / second.std(), y


FAMILY = Family(
    _train,
    (
        *("swapped_pairs", "negatives_of_the_same", "constant_inputs", "duplicated_rows"),
        *("missing_step", "large_init", "zero_init", "weight_decay_too_high", "lr_too_low"),
    ),
    spent="2026-11-28",
)
