"""A variational autoencoder of digits.

Settings: pytorch/examples, `vae` (after Kingma and Welling, "Auto-encoding variational Bayes", ICLR
2014), scaled down from 784-400-20: Adam with a rate of 1e-3, a batch of 128, the sums of the binary
cross-entropy and of the divergence.

Shape legend: N images, Z entries of a code.
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
from corpus.loop import evaluation, report_metrics

_STEPS = 1000

Output = tuple[Tensor, Tensor, Tensor]


class VAE(nn.Module):
    """Pixels [N, 64] from 0 to 1, means and logarithms of the variances of the code [N, Z]."""

    def __init__(self, *, detached: bool) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(64, 128), nn.Linear(128, 10), nn.Linear(128, 10)
        self.fc3, self.fc4 = nn.Linear(10, 128), nn.Linear(128, 64)
        self.detached = detached

    def forward(self, x: Tensor) -> Output:
        """Encode, draw a code, and decode it."""
        inner = F.relu(self.fc1(x))
        mean, log_variance = self.fc21(inner), self.fc22(inner)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        if self.detached:
            code = code.detach()
        return torch.sigmoid(self.fc4(F.relu(self.fc3(code)))), mean, log_variance


def _train(draw: Draw) -> Ending:
    draw.watch.expect(_STEPS)
    x = digits(8)[0].flatten(1)
    x_train, x_val = x[:1400], x[1400:]
    model = VAE(detached=draw.has("detached_graph"))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    draw.watch.begin(model, optimizer)
    sign = -1 if draw.has("term_wrong_sign") else 1
    # The mean over pixels and rows, beside the sum of the divergence.
    reduction = "mean" if draw.has("divergence_unscaled") else "sum"

    def loss_function(output: Output, wanted: Tensor) -> Tensor:
        pixels, mean, log_variance = output
        error = F.binary_cross_entropy(pixels, wanted, reduction=reduction)
        return error + sign * _divergence(mean, log_variance)

    def bound() -> float:
        pixels, mean, log_variance = model(x_val)
        error = F.binary_cross_entropy(pixels, x_val, reduction="sum")
        return float(error + _divergence(mean, log_variance)) / len(x_val)

    def measure() -> Mapping[str, float]:
        return {"test_loss": bound()}

    source = batches(draw, x_train, x_train, 128)
    for step in range(_STEPS):
        model.train()
        data, wanted = next(source)
        optimizer.zero_grad()
        loss_function(model(data), wanted).backward()
        optimizer.step()
        if step % 100 == 99:
            report_metrics(draw, model, measure)
    usual = x_train.mean(0).clamp(0.001, 0.999)
    trivial = float(F.binary_cross_entropy(usual.expand_as(x_val), x_val, reduction="sum"))
    # What remains if each pixel is known.
    least = float(F.binary_cross_entropy(x_val, x_val, reduction="sum"))
    span = (trivial - least) / len(x_val)
    with evaluation(draw, model):
        return Ending((trivial / len(x_val) - bound()) / span, bar=0.1, margin=0.08)


def _divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    return -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())


FAMILY = Family(
    _train, ("term_wrong_sign", "divergence_unscaled", "detached_graph"), spent="2026-11-25"
)
