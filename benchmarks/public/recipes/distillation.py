"""Knowledge distillation: a divergence from a teacher's soft labels and a cross-entropy."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.public.recipes.journal import Journal, steps
from corpus.data.bundled import digits

TEMPERATURE, SHARE, BATCH, RATE, PIXELS = 2.0, 0.25, 256, 1e-3, 24 * 24


def network(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(PIXELS, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 10),
    )


def train_teacher(teacher: nn.Module, x: Tensor, y: Tensor) -> None:
    optimizer = torch.optim.Adam(teacher.parameters(), lr=RATE)
    for _ in range(60):
        rows = torch.randint(len(x), (BATCH,))
        optimizer.zero_grad()
        F.cross_entropy(teacher(x[rows]), y[rows]).backward()
        optimizer.step()


def main() -> None:
    torch.manual_seed(0)
    x, y = digits(24)
    x = (x - x.mean()) / x.std()
    teacher, student = network(512), network(384)
    train_teacher(teacher, x, y)
    teacher.eval()
    optimizer = torch.optim.Adam(student.parameters(), lr=RATE)
    total, journal = steps(400), Journal()
    student.train()
    for _ in range(total):
        rows = torch.randint(len(x), (BATCH,))
        with torch.no_grad():
            taught = teacher(x[rows])
        logits = student(x[rows])
        divergence = F.kl_div(
            F.log_softmax(logits / TEMPERATURE, dim=-1),
            F.softmax(taught / TEMPERATURE, dim=-1),
            reduction="batchmean",
        )
        entropy = F.cross_entropy(logits, y[rows])
        loss = SHARE * TEMPERATURE**2 * divergence + (1 - SHARE) * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        journal.step(loss=loss.item())
    journal.finish(student.state_dict().values())


if __name__ == "__main__":
    main()
