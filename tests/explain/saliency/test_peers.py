"""SmoothGrad, integrated gradients and Grad-CAM equal plain implementations of their papers."""

from __future__ import annotations

import sys
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.explain.saliency.models import Computed, classifier, drawn
from vinedresser.errors import MissingDependency
from vinedresser.explain.saliency import SaliencyError, saliency
from vinedresser.explain.saliency.options import Peer


def network() -> nn.Sequential:
    model = drawn(
        nn.Sequential(
            nn.ReLU(inplace=True), nn.Conv2d(3, 6, 3, 2), nn.BatchNorm2d(6), nn.SiLU(inplace=True),
            nn.Conv2d(6, 4, 3, padding=1), nn.ReLU(inplace=True), classifier(4),
        )
    ).eval()  # fmt: skip
    assert isinstance(model, nn.Sequential)
    return model


def images() -> Tensor:
    return torch.randn(3, 3, 11, 14, dtype=torch.float64)


def gradient(model: nn.Module, x: Tensor, target: int) -> Tensor:
    x = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(model(x.clone())[:, target].sum(), x)
    return found


def test_integrated_gradients_are_a_mean_over_a_line() -> None:
    model, x = network(), images()
    result = saliency(model, x, 2, method="integrated_gradients", postprocess="none")

    count = 200
    points = (torch.arange(count) + 0.5) / count
    mean = sum(gradient(model, p * x, 2) for p in points.double()) / count
    expected = mean * x
    assert result.attributions is not None
    np.testing.assert_allclose(
        result.attributions, expected, atol=0.02 * float(expected.abs().max())
    )
    assert result.map is not None
    np.testing.assert_allclose(result.map, result.attributions.sum(1), atol=1e-6)
    # The rest is the output for an input of zeros.
    rest = model(torch.zeros_like(x))[:, 2].detach()
    np.testing.assert_allclose(result.unattributed, rest, atol=0.02 * float(rest.abs().max()))


def test_smoothgrad_is_a_mean_gradient_around_the_input() -> None:
    weight = torch.randn(3, 8, 8, dtype=torch.float64)
    x = images()[:, :, :8, :8]
    model = Computed(lambda x: (x**2 * weight).sum((1, 2, 3)))
    result = saliency(model, x, method="smoothgrad", postprocess="none")
    assert result.attributions is not None
    noise = result.attributions / (2 * weight.numpy()) - x.numpy()
    # Means of 25 samples of noise with 15 % of the range of each image.
    for one, image in zip(noise, x, strict=True):
        spread = 0.15 * float(image.max() - image.min()) / 25**0.5
        assert one.std() == pytest.approx(spread, rel=0.2)
        assert abs(one.mean()) < spread / 3


def test_grad_cam_weighs_the_last_layer_by_mean_gradients() -> None:
    model, x = network(), images()
    result = saliency(model, x, 1, method="grad_cam", postprocess="none")

    features = model[:-1](x.clone()).detach().requires_grad_()
    (gradients,) = torch.autograd.grad(model[-1](features)[:, 1].sum(), features)
    weights = gradients.mean((2, 3), keepdim=True)
    small = torch.relu((weights * features.detach()).sum(1, keepdim=True))
    large = functional.interpolate(small, (11, 14), mode="bilinear", align_corners=True)
    assert result.map is not None
    np.testing.assert_allclose(result.map, large[:, 0], atol=1e-6)
    assert result.attributions is None
    with pytest.raises(SaliencyError, match="does not attribute"):
        _ = result.unattributed


@pytest.mark.parametrize("method", get_args(Peer))
def test_the_map_of_an_image_does_not_depend_on_its_batch(method: Peer) -> None:
    model, x = network(), images()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    state = torch.get_rng_state()
    together = saliency(model, x, 1, method=method)
    assert together.complete
    assert together.map is not None
    for place in range(3):
        alone = saliency(model, x[place : place + 1], 1, method=method)
        assert alone.map is not None
        np.testing.assert_allclose(together.map[place], alone.map[0], atol=1e-6)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module._forward_hooks for module in model.modules())


def test_rows_of_a_table() -> None:
    model = drawn(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)))
    x = torch.randn(4, 5, dtype=torch.float64)
    result = saliency(model, x, method="integrated_gradients")
    assert result.map is None
    assert result.attributions is not None
    assert result.attributions.shape == (4, 5)
    rest = model(torch.zeros_like(x)).gather(1, torch.from_numpy(result.targets)[:, None])[:, 0]
    np.testing.assert_allclose(result.unattributed, rest.detach(), rtol=1e-6)


def test_a_model_without_rows_and_columns_has_no_grad_cam() -> None:
    with pytest.raises(SaliencyError, match=r"needs a layer .* \[batch, channels, rows, columns\]"):
        saliency(nn.Sequential(nn.Linear(4, 3)), torch.ones(2, 4), method="grad_cam")


def test_without_captum_the_extra_is_named(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "captum", None)
    with pytest.raises(MissingDependency, match=r"pip install 'vinedresser\[captum\]'"):
        saliency(nn.Linear(4, 3), torch.ones(2, 4), method="smoothgrad")
