"""Cost of FullGrad in forward passes, beside a plain implementation; and completeness.

The plain implementation keeps the results of convolutions and batch norms with module hooks, and
enlarges each channel before they are summed; it knows no implicit biases of activations. CPU time,
224 x 224, arms interleaved, medians. Budget: 6 forward passes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.measure import interleave, medians, table
from benchmarks.saliency.networks import NETWORKS
from vinedresser.explain.saliency import saliency

BUDGET = 6.0


def plain(model: nn.Module, images: Tensor) -> Tensor:
    """Return FullGrad maps in the order of the paper, [batch, height, width]."""
    kept: list[tuple[Tensor, Tensor]] = []

    def keep(layer: Any, _: Any, result: Tensor) -> Tensor:
        bias = layer.bias
        if hasattr(layer, "running_mean"):
            deviation = torch.sqrt(layer.running_var + layer.eps)
            bias = layer.bias - layer.running_mean * layer.weight / deviation
        if bias is not None:
            kept.append((result, bias.detach().view(-1, 1, 1)))
        # In place, the next layer changes it.
        return result.clone()

    kinds = nn.Conv2d | nn.BatchNorm2d
    handles = [one.register_forward_hook(keep) for one in model.modules() if isinstance(one, kinds)]
    x = images.clone().requires_grad_()
    chosen = model(x).amax(1).sum()
    for handle in handles:
        handle.remove()
    gradients = torch.autograd.grad(chosen, [x, *(one for one, _ in kept)])
    terms = [gradients[0] * images]
    terms += [g * bias for g, (_, bias) in zip(gradients[1:], kept, strict=True)]
    maps = torch.zeros_like(images[:, 0])
    for term in terms:
        positive = term.abs().flatten(1)
        positive = positive - positive.amin(1, keepdim=True)
        positive = positive / (positive.amax(1, keepdim=True) + 1e-6)
        large = functional.interpolate(
            positive.view_as(term), images.shape[2:], mode="bilinear", align_corners=True
        )
        maps += large.sum(1)
    return maps


def forward(model: nn.Module, images: Tensor) -> None:
    with torch.no_grad():
        model(images)


def gradient(model: nn.Module, images: Tensor) -> None:
    x = images.clone().requires_grad_()
    torch.autograd.grad(model(x).amax(1).sum(), x)


def timed(work: Callable[..., object], *given: Any) -> Callable[[], float]:
    def measure() -> float:
        start = time.process_time()
        work(*given)
        return time.process_time() - start

    return measure


def row(name: str, batch: int, rounds: int) -> list[str]:
    """Return the figures of a network."""
    torch.manual_seed(0)
    model = NETWORKS[name]().requires_grad_(False)
    images = torch.randn(batch, 3, 224, 224)
    arms: dict[str, Callable[..., object]] = {
        "forward": forward,
        "gradient": gradient,
        "saliency": saliency,
        "plain": plain,
    }
    times = medians(
        interleave({arm: timed(work, model, images) for arm, work in arms.items()}, rounds)
    )
    single = saliency(model, images).completeness_error.max()
    double = saliency(model.double(), images.double()).completeness_error.max()
    return [
        name,
        *(f"{times[arm] / times['forward']:.1f}" for arm in ("gradient", "saliency", "plain")),
        f"{BUDGET:.1f}",
        f"{times['saliency'] / times['gradient']:.2f}",
        f"{single:.0e}",
        f"{double:.0e}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.saliency", description=__doc__)
    parser.add_argument("--batch", type=int, default=4, help="images per batch (default: 4)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements (default: 3)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    headers = [
        "network", "gradient", "saliency", "plain", "budget", "saliency / gradient",
        "error, float32", "float64",
    ]  # fmt: skip
    print("In forward passes:")
    print(table([row(name, given.batch, given.rounds) for name in NETWORKS], headers))


if __name__ == "__main__":
    main()
