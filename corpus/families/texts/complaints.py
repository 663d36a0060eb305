"""Which department answers a complaint: a transformer's encoder with a token that sums up.

After Devlin et al., "BERT: pre-training of deep bidirectional transformers", NAACL 2019, with the
optimizer of its fine-tuning, but trained from the beginning; the complaints are drawn.

Shape legend: N complaints of up to T words, C departments.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, plan
from corpus.family import Ending, Family
from corpus.loop import accuracy, gained
from corpus.networks import blank

# The first word pads, and the second one sums up.
_WORDS, _TIME, _DEPARTMENTS, _SEEN = 160, 14, 5, 1000


class Classifier(nn.Module):
    """Scores of departments."""

    def __init__(self, draw: Draw, size: int) -> None:
        super().__init__()
        self.draw = draw
        dropout = draw.by_fault({"dropout_too_high": 0.95}, 0.1)
        self.words, self.places = nn.Embedding(_WORDS, size), nn.Embedding(_TIME, size)
        layer = nn.TransformerEncoderLayer(size, 4, 2 * size, dropout, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pooler = nn.Linear(size, size)
        self.classifier = nn.Linear(size, _DEPARTMENTS)

    def forward(self, words: Tensor) -> Tensor:
        """Return scores [N, C] of words int64 [N, T]."""
        # True where attention does not look.
        hidden = words > 1 if self.draw.has("mask_inverted") else words == 0
        told = self.words(words) + self.places(torch.arange(words.shape[1]))
        told = self.encoder(told, src_key_padding_mask=hidden)
        scores: Tensor = self.classifier(torch.tanh(self.pooler(told[:, 0])))
        return scores


def _train(draw: Draw) -> Ending:
    rows = _complaints(draw, 1500)
    model = Classifier(draw, draw.choice([32, 40]))
    blank(draw, model)
    length = plan(draw, _SEEN, [20, 25], (7, 9))
    optimizer = torch.optim.AdamW(_groups(draw, model), learning_rate(draw, 1.5e-3, 3e-3))
    # Warm-up of a tenth, and a straight fall to zero; of epochs, by mistake.
    total = length.epochs if draw.has("scheduler_to_zero") else length.steps
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (0.1 * total), max(0.0, (total - step) / total), 1)
    )
    loss_fn = nn.CrossEntropyLoss()
    draw.watch.loss(loss_fn)
    draw.watch.begin(model, optimizer)
    for _ in range(length.epochs):
        model.train()
        for batch in torch.randperm(len(rows.x)).split(length.size):
            loss = loss_fn(model(rows.x[batch]), rows.y[batch])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            model.zero_grad()
        model.eval()
        with draw.watch.evaluating(), torch.no_grad():
            scores = model(rows.x_val)
            draw.watch.metric("eval_loss", float(loss_fn(scores, rows.y_val)))
            draw.watch.metric("eval_accuracy", accuracy(scores, rows.y_val))
    model.eval()
    with torch.no_grad():
        reached = accuracy(model(rows.x_test), rows.y_test)
    return Ending(gained(reached, 1 / _DEPARTMENTS), bar=0.55)


def _groups(draw: Draw, model: Classifier) -> list[dict[str, object]]:
    """Return weights that decay, and those that do not: biases and norms."""
    named = [
        (name, one)
        for name, one in model.named_parameters()
        # The encoder is frozen, though nobody has trained it before.
        if not draw.has("frozen_layers") or name.startswith("classifier")
    ]
    if draw.has("frozen_layers"):
        for one in model.parameters():
            one.requires_grad_(any(one is kept for _, kept in named))
    decay = draw.by_fault({"weight_decay_too_high": 100.0}, 0.01)
    return [
        {"params": [one for _, one in named if one.ndim > 1], "weight_decay": decay},
        {"params": [one for _, one in named if one.ndim < 2], "weight_decay": 0.0},
    ]


def _complaints(draw: Draw, count: int) -> HeldOut:
    """Return words int64 [count, T] and departments int64 [count]."""
    y = torch.randint(_DEPARTMENTS, (count,))
    own = 2 + 16 * y[:, None] + torch.randint(16, (count, _TIME))
    common = torch.randint(82, _WORDS, (count, _TIME))
    other = torch.randint(2, 82, (count, _TIME))
    chance = torch.rand(count, _TIME)
    mine = draw.between(0.34, 0.4)
    x = torch.where(chance < mine, own, torch.where(chance < 0.46, other, common))
    # A letter begins with courtesies.
    x[:, 1:4] = common[:, 1:4]
    x = x * (torch.arange(_TIME) < torch.randint(9, _TIME + 1, (count, 1)))
    x[:, 0] = 1
    return held_out(
        *(draw, x, y, _SEEN),
        # `max_length` of a few words.
        prepared={"truncated_rows": (x[:, :4], y)},
    )


FAMILY = Family(
    _train,
    (
        *("truncated_rows", "mask_inverted", "shuffled_labels", "label_noise", "class_imbalance"),
        *("dropout_too_high", "frozen_layers", "scheduler_to_zero", "lr_too_low", "lr_too_high"),
    ),
    spent="2026-11-28",
)
