"""A small transformer that predicts the next character."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from sklearn import datasets
from torch import Tensor, nn

from corpus import networks, optimisation
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, run_loop
from corpus.losses import Loss


class Block(nn.Module):
    """A block of a transformer, of [N, T, width]."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inside, self.outside = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Attend and transform."""
        parts = self.inside(self.norm_1(x)).unflatten(2, (3, self.heads, -1))
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=self.causal)
        x = x + self.outside(mixed.transpose(1, 2).flatten(2))
        added: Tensor = self.mlp(self.norm_2(x))
        return x + added


class Gpt(nn.Module):
    """Logits [N, T, V] of the next of V characters."""

    def __init__(self, draw: Draw, alphabet: int, context: int) -> None:
        super().__init__()
        width, causal = draw.choice([32, 48, 64]), not draw.has("no_causal_mask")
        self.tokens, self.places = nn.Embedding(alphabet, width), nn.Embedding(context, width)
        count = draw.choice([1, 2, 3])
        self.blocks = nn.Sequential(*(Block(width, 4, causal=causal) for _ in range(count)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, alphabet, bias=False)
        for one in (self.tokens, self.places, self.head):
            nn.init.normal_(one.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits."""
        inner = self.blocks(self.tokens(ids) + self.places.weight[: ids.shape[1]])
        logits: Tensor = self.head(self.norm(inner))
        return logits


def _train(draw: Draw) -> Ending:
    text = _text(draw)
    border = int(0.9 * len(text))
    context, size = draw.choice([16, 24, 32]), draw.choice([8, 16, 32])
    alphabet = int(text.max()) + 1
    model = Gpt(draw, alphabet, context)
    networks.spoil(draw, model)
    steps = draw.steps(150, 500)
    kinds = ("adam", "adamw", "adamw")
    optimiser = optimisation.Optimisation(
        draw, model, steps, scale=1.5, kinds=kinds, accumulates=False
    )
    kinds_of_loss: list[Loss] = [F.cross_entropy, nn.CrossEntropyLoss()]
    loss = draw.watch.loss(draw.choice(kinds_of_loss))

    def windows(part: Tensor, count: int) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(part) - context, (count,))
        rows = torch.stack([part[start : start + context + 1] for start in starts.tolist()])
        return rows[:, :-1], rows[:, 1:]

    def compute() -> Tensor:
        ids, targets = windows(text[:border], size)
        if draw.has("unshifted_targets"):
            targets = ids
        if draw.has("shuffled_labels"):
            targets = targets[torch.randperm(size)]
        logits = model(ids)
        if draw.has("double_softmax"):
            logits = logits.softmax(2)
        return loss(logits.flatten(0, 1), targets.flatten())

    def evaluate() -> Mapping[str, float]:
        ids, targets = windows(text[border:], 64)
        value = float(loss(model(ids).flatten(0, 1), targets.flatten()))
        return {"perplexity": math.exp(min(value, 50))}

    chosen = evaluate if draw.chance(0.6) else None
    run_loop(draw, model, optimiser, steps, compute=compute, evaluate=chosen)
    # Of the last character alone: no model can see what follows it.
    ids, targets = windows(text[border:], 1500)
    share = torch.bincount(text[:border], minlength=alphabet).float() + 1
    trivial = F.nll_loss((share / share.sum()).log().expand(1500, -1), targets[:, -1])
    with evaluation(draw, model):
        reached = F.cross_entropy(model(ids)[:, -1], targets[:, -1])
    return Ending(float(1 - reached / trivial), bar=0.12, margin=0.08)


def _text(draw: Draw) -> Tensor:
    """Return the numbers of the characters of a text: descriptions of data sets, or a language."""
    if draw.chance(0.5):
        names = ("iris", "wine", "breast_cancer", "diabetes", "digits", "linnerud")
        said = "".join(getattr(datasets, f"load_{name}")().DESCR for name in names).lower()
        letters = sorted(set(said))
        return torch.tensor([letters.index(one) for one in said])
    words = [
        "".join(draw.random.choices("abcdefghijklmnop", k=draw.random.randint(2, 6)))
        for _ in range(draw.whole(20, 200))
    ]
    said = " ".join(draw.random.choices(words, k=6000))
    return torch.tensor(["abcdefghijklmnop ".index(one) for one in said])


FAMILY = Family(
    _train,
    (
        *(one for one in optimisation.FAULTS if one not in ("clip_too_small", "half_underflow")),
        *("zero_init", "large_init", "detached_graph", "double_softmax", "shuffled_labels"),
        *("no_causal_mask", "unshifted_targets"),
    ),
    spent="2026-11-23",
)
