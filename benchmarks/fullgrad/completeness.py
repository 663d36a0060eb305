"""Largest completeness errors of many architectures, in both precisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.fullgrad.networks import NETWORKS
from benchmarks.measure import table
from tests.explain.attention.test_albert import Albert
from tests.explain.attention.test_albert import pretrained as albert_weights
from tests.explain.saliency.models import Computed, drawn
from tests.explain.saliency.test_keras import ARCHITECTURES, branches, precision, redrawn
from tests.pruning.keras_.zoo import ZOO as KERAS_ZOO
from tests.pruning.torch_ import zoo, zoo_attention
from tests.pruning.torch_.efficientnet import cut, photographs
from vinedresser.explain.saliency import saliency

__all__ = ["completeness_table"]


def completeness_table() -> str:
    """Return the table of PyTorch and Keras models, random and pretrained."""
    rows = [*_pretrained(), *_random(), *_keras()]
    return table(rows, ["architecture", "", "float32", "float64"])


def _errors(model: Any, inputs: torch.Tensor) -> list[str]:
    errors = []
    for dtype in (torch.float32, torch.float64):
        given = inputs.to(dtype) if inputs.is_floating_point() else inputs
        result = saliency(model.to(dtype), given)
        assert result.complete, result
        errors.append(f"{result.completeness_error.max():.0e}")
    return errors


def _pretrained() -> list[list[str]]:
    rows = []
    name = "EfficientNet-Lite0"
    if name in NETWORKS:
        images = torch.cat([cut(photograph, 27, 134, 373) for photograph in photographs()])
        rows.append([name, "ImageNet, photographs", *_errors(NETWORKS[name](), images)])
    try:
        weights, vocabulary = albert_weights()
    except pytest.skip.Exception:
        return rows
    ids = torch.tensor([[vocabulary.index(one) for one in ("[CLS]", *"CCO", "[SEP]")]])
    model = Computed(lambda x, albert: albert(x)[:, 1], Albert(weights)).eval()
    return [*rows, ["ALBERT", "rxnmapper, a molecule", *_errors(model, ids)]]


def _random() -> list[list[str]]:
    torch.manual_seed(0)
    images = torch.randn(2, 3, 16, 16)
    several = ("U-Net", "two heads", "super-resolution")
    return [
        [name, "PyTorch", *_errors(drawn(make()).eval(), images)]
        for name, make in (zoo.ZOO | zoo_attention.ZOO).items()
        if name not in several
    ]


def _keras() -> list[list[str]]:
    rows = []
    rng = np.random.default_rng(0)
    for name, make in {**KERAS_ZOO, "branches": branches}.items():
        if name not in (*ARCHITECTURES, "branches"):
            continue
        errors = []
        for dtype in ("float32", "float64"):
            with precision(dtype):
                model = redrawn(make())
            shape = [2, *model.inputs[0].shape[1:]]
            integers = model.inputs[0].dtype.startswith("int")
            drawing = rng.integers(0, 10, shape) if integers else rng.normal(size=shape)
            result = saliency(model, drawing if integers else drawing.astype(dtype))
            assert result.complete, result
            errors.append(f"{result.completeness_error.max():.0e}")
        rows.append([name, "Keras, TensorFlow", *errors])
    return rows
