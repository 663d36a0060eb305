"""Image classification after timm: mixup with soft targets, an average of the weights, cosine."""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.public.recipes.journal import Journal, steps
from corpus.data.bundled import digits

BATCH, CLASSES, RATE, LEAST, SMOOTHING, DECAY = 48, 10, 2e-3, 1e-5, 0.1, 0.99


class SoftTargetCrossEntropy(nn.Module):
    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return torch.sum(-target * F.log_softmax(x, dim=-1), dim=-1).mean()


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class Average:
    """A copy of a model whose weights follow those of the model."""

    def __init__(self, model: nn.Module) -> None:
        self.module = copy.deepcopy(model).eval()
        for parameter in self.module.parameters():
            parameter.requires_grad = False

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        pairs = zip(self.module.state_dict().values(), model.state_dict().values(), strict=True)
        for mine, new in pairs:
            mine.copy_(DECAY * mine + (1 - DECAY) * new)


def mix(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    share = torch.distributions.Beta(0.8, 0.8).sample().item()
    low = SMOOTHING / CLASSES
    target = torch.full((len(y), CLASSES), low)
    target.scatter_(1, y[:, None], 1 - SMOOTHING + low)
    return x * share + x.flip(0) * (1 - share), target * share + target.flip(0) * (1 - share)


def validate(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    criterion = nn.CrossEntropyLoss()
    with torch.no_grad():
        losses: list[float] = [
            criterion(model(some), labels).item() * len(labels)
            for some, labels in zip(x.split(64), y.split(64), strict=True)
        ]
    return sum(losses) / len(y)


def main() -> None:
    torch.manual_seed(42)
    x, y = digits(16)
    x = (x - x.mean()) / x.std()
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Residual(16),
        nn.MaxPool2d(2),
        Residual(16),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )
    average, criterion = Average(model), SoftTargetCrossEntropy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.05)
    total, journal = steps(300), Journal()
    for step in range(total):
        model.train()
        share = (step + 1) / 20 if step < 20 else 0.5 * (1 + math.cos(math.pi * step / total))
        for group in optimizer.param_groups:
            group["lr"] = LEAST + (RATE - LEAST) * share
        rows = torch.randint(1472, (BATCH,))
        mixed, targets = mix(x[rows], y[rows])
        loss = criterion(model(mixed), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model)
        journal.step(loss=loss.item())
        if step % 50 == 49:
            journal.evaluated(validate(model, x[1472:], y[1472:]))
            validate(average.module, x[1472:], y[1472:])
    journal.finish([*model.state_dict().values(), *average.module.state_dict().values()])


if __name__ == "__main__":
    main()
