"""A small GPT on characters, after nanoGPT: tied weights, the loss inside the model."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.public.recipes.journal import Journal, steps
from corpus.data.bundled import characters

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 32, 64, 4, 3, 16
RATE, LEAST, WARM_UP = 1e-3, 1e-4, 20


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.outside = nn.Linear(WIDTH, WIDTH, bias=False)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        split = (batch, length, HEADS, WIDTH // HEADS)
        queries, keys, values = (
            one.view(split).transpose(1, 2) for one in self.inside(x).split(WIDTH, dim=2)
        )
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        joined = mixed.transpose(1, 2).reshape(batch, length, WIDTH)
        attended: Tensor = self.dropout(self.outside(joined))
        return attended


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        added: Tensor = self.mlp(self.norm_2(x))
        return x + added


class GPT(nn.Module):
    def __init__(self, alphabet: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(alphabet, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, alphabet, bias=False)
        self.apply(self._initialise)
        self.tokens.weight = self.head.weight

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def rate(step: int, total: int) -> float:
    if step < WARM_UP:
        return RATE * (step + 1) / (WARM_UP + 1)
    share = (step - WARM_UP) / max(total - WARM_UP, 1)
    return LEAST + 0.5 * (1 + math.cos(math.pi * share)) * (RATE - LEAST)


def batch(text: Tensor) -> tuple[Tensor, Tensor]:
    starts = torch.randint(len(text) - CONTEXT, (BATCH,))
    rows = torch.stack([text[start : start + CONTEXT + 1] for start in starts])
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def estimate(model: GPT, text: Tensor) -> float:
    model.eval()
    found = torch.tensor([model(*batch(text))[1].item() for _ in range(5)])
    model.train()
    return found.mean().item()


def main() -> None:
    torch.manual_seed(1337)
    text, alphabet = characters()
    training, validation = text[: int(0.9 * len(text))], text[int(0.9 * len(text)) :]
    model = GPT(alphabet)
    decayed = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))
    total, journal = steps(300), Journal()
    for step in range(total):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, total)
        if step % 50 == 49:
            journal.evaluated(estimate(model, validation))
        _, loss = model(*batch(training))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        journal.step(loss=loss.item())
    journal.finish(model.state_dict().values())


if __name__ == "__main__":
    main()
