"""Maps equal those of a plain implementation of the paper, for each image by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.explain.saliency.models import Computed, classifier, drawn
from tests.pruning.torch_ import zoo_attention
from vinedresser.explain.saliency import saliency
from vinedresser.explain.saliency.options import Method, Peer, Postprocess


def network() -> nn.Module:
    return drawn(
        nn.Sequential(
            nn.Conv2d(3, 6, 3, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 4, 3, padding=1), nn.ReLU(), classifier(4),
        )
    ).eval()  # fmt: skip


def paper(model: nn.Sequential, x: Tensor, target: int, method: str, postprocess: str) -> Tensor:
    """Draw the map of one image, channel by channel as in the paper, [height, width]."""
    x = x.clone().requires_grad_()
    results: list[Tensor] = []
    biases: list[Any] = []
    value = x
    for layer in model:
        value = layer(value)
        if isinstance(layer, nn.Conv2d):
            biases.append(layer.bias)
        elif isinstance(layer, nn.BatchNorm2d):
            assert layer.running_mean is not None
            assert layer.running_var is not None
            deviation = torch.sqrt(layer.running_var + layer.eps)
            biases.append(layer.bias - layer.running_mean * layer.weight / deviation)
        else:
            continue
        results.append(value)
    gradients = torch.autograd.grad(value[0, target], [x, *results])
    terms = [gradients[0] if method == "gradient" else gradients[0] * x.detach()]
    if method == "fullgrad":
        terms += [g * b.view(1, -1, 1, 1) for g, b in zip(gradients[1:], biases, strict=True)]
    elif method == "simple_fullgrad":
        terms += gradients[1:]
    drawn = torch.zeros(x.shape[2:], dtype=x.dtype)
    for signed in terms:
        term = signed if postprocess == "none" else signed.abs()
        if postprocess == "rescale":
            shifted = term - term.min()
            term = shifted / (shifted.max() + 1e-6)
        large = functional.interpolate(term, x.shape[2:], mode="bilinear", align_corners=True)
        drawn = drawn + large[0].sum(0)
    return drawn.detach()


@pytest.mark.parametrize("postprocess", get_args(Postprocess))
@pytest.mark.parametrize("method", sorted({*get_args(Method)} - {*get_args(Peer)}))
def test_maps_equal_those_of_the_paper(method: Method, postprocess: Postprocess) -> None:
    model, x = network(), torch.randn(3, 3, 17, 20, dtype=torch.float64)
    targets = [4, 0, 2]
    result = saliency(model, x, targets, method=method, postprocess=postprocess)

    assert result.map is not None
    assert result.map.shape == (3, 17, 20)
    assert result.map.dtype == np.float32
    assert result.targets.tolist() == targets
    assert isinstance(model, nn.Sequential)
    for place, target in enumerate(targets):
        expected = paper(model, x[place : place + 1], target, method, postprocess)
        scale = float(expected.abs().max())
        np.testing.assert_allclose(result.map[place], expected, atol=1e-6 * scale)


def test_the_default_target_is_the_largest_output() -> None:
    model, x = network(), torch.randn(4, 3, 12, 12, dtype=torch.float64)
    result = saliency(model, x)
    assert result.targets.tolist() == model(x).argmax(1).tolist()


def constant_token(x: Tensor, first: nn.Module, last: nn.Module) -> Any:
    """Write the examples' features into a constant, in which they cannot be followed."""
    features = first(x).flatten(1)
    tokens = torch.ones(len(x), 2, features.shape[1], dtype=x.dtype)
    tokens[:, 1] = features
    return last(tokens.square().flatten(1))


@pytest.mark.parametrize("name", ["network", "instance norm", "ViT", "windows", "constant"])
def test_the_map_of_an_image_does_not_depend_on_its_batch(name: str) -> None:
    models: dict[str, Callable[[], nn.Module]] = {
        "network": network,
        "instance norm": lambda: drawn(
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4), nn.SiLU(), classifier(4))
        ),
        "ViT": lambda: drawn(zoo_attention.ZOO["ViT"]()),
        "windows": lambda: drawn(zoo_attention.ZOO["windows"]()),
        "constant": lambda: drawn(
            Computed(constant_token, nn.Conv2d(3, 2, 3, 4), nn.Linear(2 * 2 * 4 * 4, 5))
        ),
    }
    model, x = models[name](), torch.randn(3, 3, 16, 16, dtype=torch.float64)
    together = saliency(model, x, 1)
    assert together.complete
    assert together.map is not None
    for place in range(3):
        alone = saliency(model, x[place : place + 1], 1)
        assert alone.map is not None
        np.testing.assert_allclose(together.map[place], alone.map[0], rtol=1e-6, atol=1e-7)
        for term, one in alone.bias_terms.items():
            np.testing.assert_allclose(
                together.bias_terms[term].sums[place], one.sums[0], rtol=1e-9, atol=1e-12
            )


def test_pixels_are_followed_through_other_orders_of_dimensions() -> None:
    """A linear layer over channels is a convolution of one pixel."""
    first = nn.Linear(3, 5)

    def channels_last(x: Tensor, first: nn.Module, last: nn.Module) -> Any:
        tokens = x.flatten(2).transpose(1, 2)
        features = functional.silu(first(tokens)).transpose(1, 2).reshape(len(x), 5, *x.shape[2:])
        return last(features)

    model = drawn(Computed(channels_last, first, classifier(5)))
    convolution = nn.Conv2d(3, 5, 1).double()
    with torch.no_grad():
        convolution.weight.copy_(first.weight.view(5, 3, 1, 1))
        convolution.bias.copy_(first.bias)  # type: ignore[union-attr]
    last = model.get_submodule("layers.1")
    same = nn.Sequential(convolution, nn.SiLU(), last)
    x = torch.randn(2, 3, 6, 7, dtype=torch.float64)

    found, expected = saliency(model, x).map, saliency(same, x).map
    assert found is not None
    assert expected is not None
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_scores_of_attention_are_no_pixels() -> None:
    result = saliency(
        drawn(zoo_attention.ZOO["ViT, attention by hand"]()),
        torch.randn(2, 3, 16, 16, dtype=torch.float64),
    )
    softmax = [term for term in result.bias_terms.values() if term.operator == "_softmax"]
    assert softmax
    assert not any(one.in_map for one in softmax)
