"""Maps of a trained network depend on what it has learned, and show what it needs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional

from vinedresser.explain.saliency import saliency

pytestmark = pytest.mark.thorough

Maps = NDArray[np.float32]


def block(inner: int, outer: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(inplace=True)
    )


@pytest.fixture(scope="module")
def trained() -> tuple[nn.Sequential, Tensor]:
    """Train on handwritten digits; return the network and images that it has not seen."""
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    small = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    images = functional.interpolate(small, (16, 16), mode="bilinear")
    labels = torch.tensor(digits.target)
    torch.manual_seed(0)
    model = nn.Sequential(
        block(1, 16), block(16, 16), nn.MaxPool2d(2), block(16, 32), block(32, 32),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(6):
        for rows in torch.randperm(1500).split(64):
            optimizer.zero_grad()
            functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
    model.eval()
    unseen = images[1500:]
    accuracy = (model(unseen).argmax(1) == labels[1500:]).float().mean()
    assert accuracy > 0.9
    return model, unseen


def maps_of(model: nn.Module, images: Tensor, targets: Any) -> Maps:
    result = saliency(model, images, targets)
    assert result.complete, str(result)
    assert result.map is not None
    return result.map


def agreement(one: Maps, other: Maps) -> float:
    """Return the mean rank correlation of maps."""
    pairs = zip(one, other, strict=True)
    return float(np.mean([stats.spearmanr(a.ravel(), b.ravel()).statistic for a, b in pairs]))


def guided(model: nn.Module, images: Tensor, targets: list[int]) -> Maps:
    """Return maps by guided backpropagation, which shows edges whatever the last layers compute.

    Springenberg et al., Striving for Simplicity, ICLR 2015; Adebayo et al., Sanity Checks for
    Saliency Maps, NeurIPS 2018.
    """

    def positive(_: nn.Module, read: Any, written: Any) -> Any:
        del written
        return (read[0].clamp(min=0),)

    apart = copy.deepcopy(model)
    for module in apart.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
            module.register_full_backward_hook(positive)
    given = images.clone().requires_grad_()
    chosen = apart(given).gather(1, torch.tensor(targets).unsqueeze(1)).sum()
    (gradient,) = torch.autograd.grad(chosen, given)
    maps: Maps = gradient.abs().sum(1).numpy()
    return maps


Method = Callable[[nn.Module, Tensor, list[int]], Maps]


def cascade(method: Method, model: nn.Sequential, images: Tensor) -> list[float]:
    """Return the agreement of maps with those of the model, as more of its last layers are random.

    The first is that with a random classifier, the second with a random last block, too.
    """
    targets = model(images).argmax(1).tolist()
    before = method(model, images, targets)
    random = copy.deepcopy(model)
    torch.manual_seed(1)
    found = []
    for layer in reversed(list(random)):
        changed = [
            module for module in layer.modules() if isinstance(module, nn.Conv2d | nn.Linear)
        ]
        for one in changed:
            one.reset_parameters()
        if changed:
            found.append(agreement(before, method(random, images, targets)))
    return found


def test_random_layers_destroy_the_map(trained: tuple[nn.Sequential, Tensor]) -> None:
    model, images = trained[0], trained[1][:48]
    found = cascade(maps_of, model, images)
    assert max(found[1:]) <= 0.3, found
    # The same test exposes a method that shows edges.
    assert cascade(guided, model, images)[1] >= 0.5


def kept(model: nn.Module, images: Tensor, order: NDArray[np.int64], share: float) -> float:
    """Return the share of predictions that stay when the first pixels of an order are erased."""
    count = round(share * order.shape[1])
    erased = images.clone().flatten(1)
    erased.scatter_(1, torch.from_numpy(order[:, :count].copy()), 0.0)
    same = model(erased.view_as(images)).argmax(1) == model(images).argmax(1)
    return float(same.float().mean())


def test_the_least_salient_pixels_are_not_needed(trained: tuple[nn.Sequential, Tensor]) -> None:
    model, images = trained
    order = maps_of(model, images, None).reshape(len(images), -1).argsort(1)
    assert kept(model, images, order, 0.1) >= 0.9
    least, most = (kept(model, images, one, 0.3) for one in (order, order[:, ::-1]))
    assert least - most >= 0.2
