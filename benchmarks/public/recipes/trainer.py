"""A generic trainer after Hugging Face's: the model returns its loss; gradients are accumulated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.public.recipes.journal import Journal, steps
from corpus.data.bundled import characters

WIDTH, LENGTH, BATCH, CLASSES = 48, 32, 16, 4


@dataclass
class Output:
    loss: Tensor | None
    logits: Tensor


class Classifier(nn.Module):
    """Classifies texts; without labels there is no loss."""

    def __init__(self, alphabet: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(alphabet, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classifier = nn.Linear(WIDTH, CLASSES)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Output:
        logits = self.classifier(self.encoder(self.embedding(input_ids)).mean(1))
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return Output(loss, logits)


class Trainer:
    """Trains a model on batches of keyword arguments."""

    def __init__(self, model: nn.Module, data: list[dict[str, Tensor]], total: int) -> None:
        self.model, self.data, self.total, self.accumulated = model, data, total, 2
        self.journal = Journal()
        decayed = [parameter for parameter in model.parameters() if parameter.ndim > 1]
        others = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0}]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3)
        warm_up = max(total // 10, 1)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer,
            lambda step: min(
                (step + 1) / warm_up, max(0.0, (total - step) / (total - warm_up + 1))
            ),
        )

    def training_step(self, inputs: dict[str, Tensor]) -> float:
        self.model.train()
        loss: Tensor = self.model(**inputs).loss / self.accumulated
        loss.backward()
        return loss.item()

    def evaluate(self, data: list[dict[str, Tensor]]) -> float:
        self.model.eval()
        with torch.no_grad():
            losses = [self.model(**inputs).loss.repeat(BATCH) for inputs in data]
        return torch.cat(losses).mean().item()

    def train(self, held_out: list[dict[str, Tensor]]) -> None:
        for step in range(self.total):
            place = step * self.accumulated
            batches = [self.data[(place + one) % len(self.data)] for one in range(self.accumulated)]
            loss = sum(map(self.training_step, batches))
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            self.model.zero_grad()
            self.journal.step(loss=loss)
            if step % 50 == 49:
                self.journal.evaluated(self.evaluate(held_out))


def main() -> None:
    torch.manual_seed(42)
    text, alphabet = characters()
    starts = torch.randint(len(text) - LENGTH, (340 * BATCH,))
    ids = torch.stack([text[start : start + LENGTH] for start in starts])
    # A class is the quarter of the alphabet that is most frequent in the text's middle.
    labels = (ids[:, 8:24].float().mean(1).argsort().argsort() * CLASSES) // len(ids)
    data = [
        {"input_ids": one, "labels": label}
        for one, label in zip(ids.split(BATCH), labels.split(BATCH), strict=True)
    ]
    trainer = Trainer(Classifier(alphabet), data[:320], steps(200))
    trainer.train(data[320:])
    trainer.journal.finish(trainer.model.state_dict().values())


if __name__ == "__main__":
    main()
