"""Kinds of cells, from how many copies of each gene they have: a variational autoencoder of counts.

After Lopez et al., "Deep generative modeling for single-cell transcriptomics", Nature Methods 2018,
with a Poisson likelihood; the cells are drawn.

Shape legend: N cells, G genes, D numbers of a code.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from corpus import networks
from corpus.draw import Draw
from corpus.epochs import fit, learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family

_GENES, _KINDS, _CODE, _SEEN = 40, 5, 4, 900


class CellVAE(nn.Module):
    """Logarithms of expected counts, and the distribution of a cell's code."""

    def __init__(self, draw: Draw, width: int) -> None:
        super().__init__()
        self.draw = draw
        self.encoder = nn.Sequential(nn.Linear(_GENES, width), nn.ReLU())
        self.code = nn.Linear(width, 2 * _CODE)
        self.decoder = nn.Sequential(nn.Linear(_CODE, width), nn.ReLU())
        self.shares = nn.Linear(width, _GENES)

    def forward(self, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logarithms [N, G], means and logarithms of variances [N, D] of counts [N, G]."""
        mean, log = self.code(self.encoder(counts.log1p())).chunk(2, 1)
        code = mean
        if self.training:
            code = mean + torch.randn_like(mean) * (log / 2).exp()
        scores = self.shares(self.decoder(code))
        shares = scores.log_softmax(0 if self.draw.has("softmax_wrong_axis") else 1)
        return shares + counts.sum(1, keepdim=True).log(), mean, log


def _train(draw: Draw) -> Ending:
    counts = _cells(draw, 1300)
    seen, valid = _prepared(draw, counts)
    model = CellVAE(draw, draw.choice([48, 64]))
    networks.spoil(draw, model)
    length = plan(draw, _SEEN, [25, 30], (10, 13))
    rate = learning_rate(draw, 3e-3, 6e-3)
    optimizer = optimizer_of(draw, "adam", trained(draw, model, model.shares), rate)
    likelihood = nn.PoissonNLLLoss(log_input=True)
    draw.watch.loss(likelihood)
    weight = draw.by_fault({"term_wrong_sign": -0.3}, 1.0) / _GENES

    def compute(batch: Tensor) -> Tensor:
        log_rate, mean, log = model(seen[batch])
        divergence = (mean.square() + log.exp() - 1 - log).sum(1).mean() / 2
        loss: Tensor = likelihood(log_rate, seen[batch]) + weight * divergence
        return loss

    def evaluate() -> Mapping[str, float]:
        return {"val_nll": float(likelihood(model(valid)[0], valid))}

    chosen = evaluate if draw.chance(0.7) else None
    fit(draw, model, optimizer, length, compute, evaluate=chosen, clip=10.0)
    model.eval()
    held = counts[_SEEN:]
    with torch.no_grad():
        found = likelihood(model(held)[0], held)
        size = held.sum(1, keepdim=True)
        usual = likelihood((size * counts[:_SEEN].sum(0) / counts[:_SEEN].sum()).log(), held)
        best = likelihood((held + 1e-6).log(), held)
    # Counts vary by chance, which leaves about a tenth of it.
    return Ending(float((usual - found) / (usual - best)) / 0.9, bar=0.5)


def _prepared(draw: Draw, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return training cells and held-out ones, with the drawn fault if there is one."""
    source = torch.Generator().manual_seed(draw.amount.getrandbits(32))
    order = torch.rand(counts.shape, generator=source).argsort(0)
    prepared = draw.by_fault(
        {
            # Genes of other cells: the columns were sorted one by one.
            "swapped_pairs": counts.gather(0, order),
            "nan_inputs": torch.where(
                torch.rand(counts.shape, generator=source) < 0.001, torch.nan, counts
            ),
        },
        counts,
    )
    seen = prepared[:_SEEN]
    other = torch.randperm(_GENES, generator=source)
    if draw.has("swapped_ids"):
        seen = seen[:, other]
    if draw.has("duplicated_rows"):
        seen = seen[torch.arange(_SEEN) % 10]
    return seen, prepared[_SEEN:]


def _cells(draw: Draw, count: int) -> Tensor:
    """Return counts float32 [count, G]."""
    kind = torch.randint(_KINDS, (count,))
    source = draw.numpy
    usual = torch.tensor(source.normal(0.0, 1.1, (_KINDS, _GENES)), dtype=torch.float32)
    # Cells of a kind are of several ages.
    older = torch.tensor(source.normal(0.0, 0.7, _GENES), dtype=torch.float32)
    logs = usual[kind] + torch.rand(count, 1) * older
    size = draw.between(250, 350) * (0.4 * torch.randn(count, 1)).exp()
    return torch.poisson(size * logs.softmax(1)) + 0.0


FAMILY = Family(
    _train,
    (
        *("swapped_pairs", "swapped_ids", "duplicated_rows", "nan_inputs"),
        *("softmax_wrong_axis", "term_wrong_sign", "large_init", "wrong_sign"),
        *("wrong_parameters", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
