"""A GPT that continues a text character by character.

Settings: nanoGPT, `config/train_shakespeare_char.py` (github.com/karpathy/nanoGPT), scaled down
from 6 layers of 384 and a context of 256: AdamW with a rate of 1e-3, betas 0.9 and 0.99, weight
decay 0.1 on matrices, warm-up, cosine to a tenth, gradients clipped at 1, weights of N(0, 0.02).

Shape legend: N windows, T characters, V letters, D width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.bundled import characters
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import evaluation, report_metrics

_STEPS, _CONTEXT, _BATCH, _RATE, _WARM_UP = 500, 32, 12, 1e-3, 25


class Block(nn.Module):
    """Attention to earlier characters, then a transformation of each, [N, T, D]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.c_attn = nn.Linear(width, 3 * width, bias=False)
        self.c_proj = nn.Linear(width, width, bias=False)
        self.c_fc = nn.Linear(width, 4 * width, bias=False)
        self.c_out = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Add what both parts find."""
        n, t, d = x.shape
        q, k, v = (
            one.view(n, t, self.heads, d // self.heads).transpose(1, 2)
            for one in self.c_attn(self.ln_1(x)).split(d, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(mixed.transpose(1, 2).reshape(n, t, d))
        more: Tensor = self.c_out(F.gelu(self.c_fc(self.ln_2(x))))
        return x + more


class GPT(nn.Module):
    """Logits [N, T, V] of the next characters; the embedding is the last layer, too."""

    def __init__(self, letters: int, width: int = 64) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(letters, width), nn.Embedding(_CONTEXT, width)
        self.h = nn.Sequential(*(Block(width, 4) for _ in range(2)))
        self.ln_f = nn.LayerNorm(width, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        for block in self.h:
            for name in ("c_proj", "c_out"):
                nn.init.normal_(block.get_submodule(name).weight, std=0.02 / math.sqrt(4))  # type: ignore[arg-type]

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of characters [N, T]."""
        x = self.h(self.wte(ids) + self.wpe.weight[: ids.shape[1]])
        return F.linear(self.ln_f(x), self.wte.weight)


def _train(draw: Draw) -> Ending:
    draw.watch.expect(_STEPS)
    ids, letters = characters()
    text, held_out = ids[:300_000], ids[300_000:340_000]
    model = GPT(
        letters,
    )
    decayed = [one for one in model.parameters() if one.dim() >= 2]
    others = [one for one in model.parameters() if one.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=_RATE, betas=(0.9, 0.99))
    draw.watch.begin(model, optimizer)
    loss = draw.watch.loss(F.cross_entropy)
    rate = 100 * _RATE if draw.has("lr_too_high") else _RATE
    # In characters instead of steps.
    warm_up = _WARM_UP * _BATCH * _CONTEXT if draw.has("warm_up_unit") else _WARM_UP

    def windows(ids: Tensor, count: int) -> tuple[Tensor, Tensor]:
        x, y = _windows(ids, count)
        return (x, x) if draw.has("unshifted_targets") else (x, y)

    def measure() -> Mapping[str, float]:
        x, y = windows(held_out, 48)
        return {"val_loss": float(F.cross_entropy(model(x).flatten(0, 1), y.flatten()))}

    for step in range(_STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate * _factor(step, warm_up)
        if step % 100 == 0:
            report_metrics(draw, model, measure)
            model.train()
        x, y = windows(text, _BATCH)
        optimizer.zero_grad(set_to_none=True)
        loss(model(x).flatten(0, 1), y.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    # Of the last characters only, which no window shows.
    x, y = _windows(held_out, 1500)
    counts = torch.bincount(text, minlength=letters).float() + 1
    trivial = F.nll_loss((counts / counts.sum()).log().expand(len(y), -1), y[:, -1])
    with evaluation(draw, model):
        reached = F.cross_entropy(model(x)[:, -1], y[:, -1])
        reported = measure()["val_loss"]
    overstated = float((reached - reported) / trivial)
    return Ending(float(1 - reached / trivial), bar=0.15, margin=0.08, overstated=overstated)


def _factor(step: int, warm_up: int) -> float:
    if step < warm_up:
        return (step + 1) / (warm_up + 1)
    share = (step - warm_up) / (_STEPS - warm_up)
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * share))


def _windows(ids: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return random windows and the characters that follow, both [N, T]."""
    starts = torch.randint(len(ids) - _CONTEXT - 1, (count, 1))
    places = starts + torch.arange(_CONTEXT + 1)
    return ids[places[:, :-1]], ids[places[:, 1:]]


FAMILY = Family(_train, ("unshifted_targets", "warm_up_unit", "lr_too_high"), spent="2026-11-25")
