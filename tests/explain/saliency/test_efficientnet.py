"""A network trained on ImageNet, whose ReLU6 saturate, is explained completely."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.pruning.torch_.efficientnet import cut, photographs, pretrained
from vinedresser.explain.saliency import saliency

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_photographs(dtype: torch.dtype) -> None:
    model = pretrained().to(dtype)
    images = torch.cat([cut(photograph, 27, 134, 373) for photograph in photographs()]).to(dtype)
    result = saliency(model, images)

    assert result.complete, str(result)
    # Without the activations, a large part of the outputs would be missing.
    saturated = [term.sums for term in result.bias_terms.values() if term.operator == "hardtanh"]
    assert (abs(np.sum(saturated, axis=0)) > 0.1 * result.outputs).all()
    for place in range(2):
        alone = saliency(model, images[place : place + 1])
        assert result.map is not None
        assert alone.map is not None
        np.testing.assert_allclose(result.map[place], alone.map[0], rtol=1e-3, atol=1e-3)
