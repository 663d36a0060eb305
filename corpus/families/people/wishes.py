"""What else customers wish for, from what they took: a denoising autoencoder of their shelves.

After Liang et al., "Variational autoencoders for collaborative filtering", WWW 2018, the denoising
variant with a multinomial likelihood.

Shape legend: N customers, V things.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from corpus import networks
from corpus.draw import Draw
from corpus.family import Ending, Family

_THINGS, _SEEN, _TAKEN = 80, 1000, 24


def _train(draw: Draw) -> Ending:
    taken, hidden, truth = _shelves(draw, 1300)
    seen, wanted = _spoilt(draw, taken[:_SEEN], taken[:_SEEN] + hidden[:_SEEN])
    dropped = draw.by_fault({"dropout_too_high": 0.995}, draw.choice([0.2, 0.4]))
    width = draw.choice([40, 64])
    model = nn.Sequential(
        *(nn.Dropout(dropped), nn.Linear(_THINGS, width), nn.Tanh()),
        nn.Linear(width, _THINGS),
    )
    networks.spoil(draw, model)
    size, epochs = draw.choice([40, 50]), draw.whole(20, 28)
    draw.epoch = _SEEN // size
    draw.watch.expect(epochs * draw.epoch)
    rate = draw.between(3e-3, 6e-3)
    rate *= draw.by_fault({"lr_too_low": draw.extent(1e-6, 1e-5), "lr_too_high": 2000.0}, 1.0)
    decay = draw.by_fault({"weight_decay_too_high": 1.0}, draw.choice([0.0, 1e-5]))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)
    draw.watch.begin(model, optimizer)
    loader = DataLoader(TensorDataset(seen, wanted), size, shuffle=True)
    axis = 0 if draw.has("softmax_wrong_axis") else 1
    for epoch in range(epochs):
        model.train()
        for told, known in loader:
            shares = F.log_softmax(model(F.normalize(told)), axis)
            loss = -(known * shares).sum(1).mean()
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
        model.eval()
        if epoch % 5 == 4:
            with draw.watch.evaluating(), torch.no_grad():
                lost = _surprise(model(F.normalize(taken[_SEEN:])), hidden[_SEEN:])
                draw.watch.metric("val_nll", lost)
    model.eval()
    with torch.no_grad():
        reached = _surprise(model(F.normalize(taken[_SEEN:])), hidden[_SEEN:])
    alone = _surprise(hidden[:_SEEN].mean(0).log().expand(300, -1), hidden[_SEEN:])
    best = _surprise(truth[_SEEN:].log(), hidden[_SEEN:])
    return Ending(max(-1.0, (alone - reached) / (alone - best)), bar=0.45)


def _surprise(scores: Tensor, taken: Tensor) -> float:
    """Return the nats of a thing, on average."""
    return float(-(taken * F.log_softmax(scores, 1)).sum() / taken.sum())


def _spoilt(draw: Draw, told: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return shelves with the drawn fault, if there is one."""
    if draw.has("swapped_ids"):
        # Things were numbered again for what is told.
        return told[:, torch.randperm(_THINGS)], known
    if draw.has("misaligned_targets"):
        return told, known.roll(1, 0)
    if draw.has("constant_inputs"):
        return torch.ones_like(told), known
    if draw.has("duplicated_rows"):
        rows = torch.randint(6, (len(told),))
        return told[rows], known[rows]
    if draw.has("wrong_axis"):
        return told.T.reshape(told.shape), known
    return told, known


def _shelves(draw: Draw, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return what was taken and what comes, counts float32 [count, V], and the shares of both."""
    tastes = draw.numpy.dirichlet([0.06] * _THINGS, 5)
    shares = draw.numpy.dirichlet([draw.between(0.15, 0.3)] * 5, count) @ tastes
    shares = 0.9 * shares + 0.1 / _THINGS
    taken, hidden = (draw.numpy.multinomial(_TAKEN, shares) for _ in range(2))
    return (
        torch.tensor(taken, dtype=torch.float32),
        torch.tensor(hidden, dtype=torch.float32),
        torch.tensor(shares, dtype=torch.float32),
    )


FAMILY = Family(
    _train,
    (
        *("swapped_ids", "softmax_wrong_axis", "misaligned_targets", "constant_inputs"),
        *("duplicated_rows", "wrong_axis", "dropout_too_high", "weight_decay_too_high"),
        *("lr_too_low", "lr_too_high", "wrong_sign", "zero_init"),
    ),
    spent="2026-11-27",
)
