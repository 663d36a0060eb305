"""Cost of FullGrad as a multiple of forward and input gradient, beside a plain implementation."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.fullgrad.networks import NETWORKS
from benchmarks.measure import interleave, medians, table
from vinedresser.explain.saliency import saliency

__all__ = ["BUDGET", "cost_table", "peak_of_arm"]

BUDGET = 1.5


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
    handles = [
        module.register_forward_hook(keep)
        for module in model.modules()
        if isinstance(module, kinds)
    ]
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


def gradient(model: nn.Module, images: Tensor) -> None:
    x = images.clone().requires_grad_()
    torch.autograd.grad(model(x).amax(1).sum(), x)


ARMS: dict[str, Callable[..., object]] = {
    "gradient": gradient,
    "saliency": saliency,
    "plain": plain,
}


def prepared(name: str, batch: int) -> tuple[nn.Module, Tensor]:
    """Return a network and its images, with one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return NETWORKS[name]().requires_grad_(False), torch.randn(batch, 3, 224, 224)


def peak_of_arm(name: str, arm: str, batch: int) -> float:
    """Return how much an arm raises the peak memory of this process, MB."""
    model, images = prepared(name, batch)
    before = _peak()
    ARMS[arm](model, images)
    return _peak() - before


def _peak() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def _peak_elsewhere(name: str, arm: str, batch: int) -> float:
    command = [sys.executable, "-m", "benchmarks.fullgrad", "--peak", name, arm]
    done = subprocess.run(
        [*command, "--batch", str(batch)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def _timed(work: Callable[..., object], *given: Any) -> Callable[[], float]:
    def measure() -> float:
        start = time.process_time()
        work(*given)
        return time.process_time() - start

    return measure


def _row(name: str, batch: int, rounds: int) -> list[str]:
    model, images = prepared(name, batch)
    arms = {arm: _timed(work, model, images) for arm, work in ARMS.items()}
    slow = arms.pop("plain")
    times = medians(interleave(arms, rounds))
    # Afterwards, since the gigabytes that it frees slow down what follows; once is enough.
    times["plain"] = slow()
    peaks = {arm: _peak_elsewhere(name, arm, batch) for arm in ARMS}
    return [
        name,
        f"{times['gradient'] / batch * 1e3:.0f} ms",
        *(f"{times[arm] / times['gradient']:.2f}" for arm in ("saliency", "plain")),
        f"{BUDGET}",
        *(f"{peaks[arm]:.0f}" for arm in ARMS),
    ]


def cost_table(batch: int, rounds: int) -> str:
    """Return the table of all networks.

    Args:
        batch: images per batch.
        rounds: measurements of each arm.
    """
    headers = [
        "network", "forward + gradient, per image", "saliency", "plain", "budget",
        "MB gradient", "saliency", "plain",
    ]  # fmt: skip
    return table([_row(name, batch, rounds) for name in NETWORKS], headers)
