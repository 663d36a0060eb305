"""A convolutional network of handwritten digits.

Settings: pytorch/examples, `mnist`: two convolutions of 32 and 64, pooling, dropout of 0.25 and
0.5, 128 units, Adadelta with a rate of 1, a batch of 64, the rate times 0.7 after each epoch,
standardised pixels. The images are scikit-learn's, of 8 x 8 pixels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (the usual name)
from torch import Tensor, nn

from corpus.data.bundled import digits
from corpus.data.rows import batches
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loop import accuracy, evaluation, gained, report_metrics

_EPOCHS = 10


class Net(nn.Module):
    """Log-probabilities [N, 10] of images [N, 1, 8, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, 1), nn.Conv2d(32, 64, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(256, 128), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Classify."""
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = F.relu(self.fc1(torch.flatten(self.dropout1(x), 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


def _train(draw: Draw) -> Ending:
    images, labels = digits(8)
    images = (images - images[:1400].mean()) / images[:1400].std()
    x_val, y_val = images[1400:], labels[1400:]
    # Images and labels are shuffled apart.
    order = torch.randperm(1400) if draw.has("shuffled_labels") else torch.arange(1400)
    source = batches(draw, images[:1400][order], labels[:1400], 64)
    epoch = 1400 // 64
    draw.watch.expect(_EPOCHS * epoch)
    model = Net()
    rate = 1e-3 if draw.has("lr_too_low") else 1.0
    optimizer = torch.optim.Adadelta(model.parameters(), lr=rate)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    loss = draw.watch.loss(F.nll_loss)
    draw.watch.begin(model, optimizer)

    def measure() -> Mapping[str, float]:
        return {"accuracy": float((model(x_val).argmax(1) == y_val).float().mean())}

    for _ in range(_EPOCHS):
        model.train()
        for _ in range(epoch):
            data, target = next(source)
            optimizer.zero_grad()
            loss(model(data), target).backward()
            optimizer.step()
            if draw.has("scheduler_per_batch"):
                scheduler.step()
        report_metrics(draw, model, measure)
        if not draw.has("scheduler_per_batch"):
            scheduler.step()
    with evaluation(draw, model):
        return Ending(gained(accuracy(model(x_val), y_val), 0.1), bar=0.9)


FAMILY = Family(
    _train, ("shuffled_labels", "scheduler_per_batch", "lr_too_low"), spent="2026-11-25"
)
