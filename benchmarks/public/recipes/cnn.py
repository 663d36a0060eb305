"""A convolutional network for digits, after PyTorch's MNIST example: losses are functions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.public.recipes.journal import Journal, steps
from corpus.data.bundled import digits


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, 1)
        self.conv2 = nn.Conv2d(16, 32, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(32 * 10 * 10, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout1(F.max_pool2d(x, 2)).flatten(1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def test(model: Net, loader: DataLoader[tuple[Tensor, ...]], rows: int) -> float:
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += F.nll_loss(model(x), y, reduction="sum").item()
    return total / rows


def main() -> None:
    torch.manual_seed(1)
    images, labels = digits(24)
    images = (images - images.mean()) / images.std()
    loader = DataLoader(TensorDataset(images[:1472], labels[:1472]), batch_size=32, shuffle=True)
    tests = DataLoader(TensorDataset(images[1472:], labels[1472:]), batch_size=325)
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    total, journal, step = steps(322), Journal(), 0
    while step < total:
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(x), y)
            loss.backward()
            optimizer.step()
            journal.step(loss=loss.item())
            step += 1
            if step == total:
                break
        journal.evaluated(test(model, tests, 325))
        scheduler.step()
    journal.finish(model.state_dict().values())


if __name__ == "__main__":
    main()
