"""Groups of cells that nobody named: an autoencoder, then groups that become sharper.

After Xie, Girshick and Farhadi, "Unsupervised deep embedding for clustering analysis", ICML 2016;
the cells are drawn.

Shape legend: N cells of F genes, C groups, D numbers of an embedding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from torch import Tensor, nn

from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.networks import spoil

_GENES, _GROUPS, _CELLS, _EMBEDDING = 40, 5, 700, 5


class DEC(nn.Module):
    """Cells that are drawn again, and how near they are to each group."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            *(nn.Linear(_GENES, width), nn.ReLU(), nn.Linear(width, _EMBEDDING))
        )
        self.decoder = nn.Sequential(
            *(nn.Linear(_EMBEDDING, width), nn.ReLU(), nn.Linear(width, _GENES))
        )
        self.centres = nn.Parameter(torch.randn(_GROUPS, _EMBEDDING))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return cells [N, F] and shares [N, C] of cells float32 [N, F]."""
        z = self.encoder(x)
        near = 1 / (1 + torch.cdist(z, self.centres).square())
        return self.decoder(z), near / near.sum(1, keepdim=True)


def _sharpened(q: Tensor) -> Tensor:
    weight = q.square() / q.sum(0)
    return (weight / weight.sum(1, keepdim=True)).detach()


def _train(draw: Draw) -> Ending:
    x, groups = _cells(draw)
    given = _prepared(draw, x)
    model = DEC(draw.choice([32, 48]))
    spoil(draw, model)
    length = plan(draw, _CELLS, [35, 50], (16, 20))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.decoder), rate)
    rebuild = draw.watch.loss(F.mse_loss)
    draw.watch.begin(model, optimizer)
    alone = length.epochs // 2
    for epoch in range(length.epochs):
        if epoch == alone:
            _place_centres(draw, model, given)
        total = 0.0
        for picked in torch.randperm(_CELLS).split(length.size)[: length.batches]:
            drawn, q = model(given[picked])
            loss = rebuild(drawn, given[picked])
            if epoch >= alone:
                loss = loss + 0.1 * F.kl_div(q.log(), _sharpened(q), reduction="batchmean")
            optimizer.zero_grad()
            (-loss if draw.has("wrong_sign") else loss).backward()
            optimizer.step()
            total += loss.item()
        draw.watch.metric("loss", total / length.batches)
    with draw.watch.evaluating(), torch.no_grad():
        found = model(given)[1].nan_to_num(0).argmax(1)
    return Ending(float(adjusted_rand_score(groups, found)), bar=0.5, margin=0.25)


@torch.no_grad()
def _place_centres(draw: Draw, model: DEC, given: Tensor) -> None:
    """Place the centres of the groups in the middle of cells that are near each other."""
    z = model.encoder(given)
    if z.isfinite().all():
        means = KMeans(_GROUPS, n_init=5, random_state=0).fit(z.numpy()).cluster_centers_
        model.centres.copy_(torch.tensor(means))
    if draw.has("collapse"):
        # They are all in one place.
        model.centres.copy_(z.mean(0).expand_as(model.centres))


def _prepared(draw: Draw, x: Tensor) -> Tensor:
    """Return cells as the script prepares them, with the drawn fault if there is one."""
    counts = x.clone()
    counts[:, :3] = 4000 * torch.randn(len(x), 3) + 5000
    return draw.by_fault(
        {
            # Genes that every cell uses, in counts.
            "unnormalised_inputs": counts,
            "wrong_axis": x.T.reshape(x.shape),
            "constant_inputs": torch.zeros_like(x),
            "nan_inputs": torch.where(torch.rand(x.shape) < 0.002, torch.nan, x),
        },
        x,
    )


def _cells(draw: Draw) -> tuple[Tensor, Tensor]:
    """Return standardised genes float32 [N, F], and groups int64 [N]."""
    y = torch.randint(_GROUPS, (_CELLS,))
    x = 1.1 * torch.randn(_GROUPS, _GENES)[y] + 0.4 * torch.randn(_CELLS, 3) @ torch.randn(
        3, _GENES
    )
    x = x + draw.between(0.9, 1.2) * torch.randn(_CELLS, _GENES)
    return (x - x.mean(0)) / x.std(0), y


FAMILY = Family(
    _train,
    (
        *("unnormalised_inputs", "wrong_axis", "constant_inputs", "nan_inputs", "collapse"),
        *("wrong_sign", "large_init", "zero_init", "lr_too_high"),
    ),
)
