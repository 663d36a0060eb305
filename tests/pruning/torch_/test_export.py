"""Pruned models are exported, and the exported ones compute the same."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import nn

from tests.pruning.torch_ import zoo, zoo_attention
from tests.pruning.torch_.reference import plan_of, results
from vinedresser.pruning.proof import relative_difference
from vinedresser.pruning.torch_ import TorchPrunable

ZOO = zoo.ZOO | zoo_attention.ZOO
# Of each kind of block one; that all are pruned rightly, test_zoo.py shows.
THOROUGH = ("ResNet", "DenseNet", "ShuffleNet", "U-Net", "ViT, fused", "grouped queries", "windows")
ARCHITECTURES = [
    pytest.param(name, marks=pytest.mark.thorough if name in THOROUGH else pytest.mark.slow)
    for name in ZOO
]
EXAMPLE = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(3))
# Another batch than the example: an exported model has sizes of layers, not of this input.
BATCH = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(4))


def pruned(name: str) -> nn.Module:
    """Return a model of the zoo without a quarter of its channels."""
    torch.manual_seed(0)
    prunable = TorchPrunable(ZOO[name]().eval(), EXAMPLE)
    return prunable.removed(plan_of(prunable))


def exported(model: nn.Module) -> torch.export.ExportedProgram:
    """Return a model for any batch size."""
    return torch.export.export(model, (EXAMPLE,), dynamic_shapes=({0: torch.export.Dim("batch")},))


def check_export(name: str) -> None:
    model = pruned(name)
    file = io.BytesIO()
    torch.export.save(exported(model), file)
    file.seek(0)
    served = torch.export.load(file).module()
    assert relative_difference(results(model, BATCH), results(served, BATCH)) <= 1e-6


@pytest.mark.thorough
def test_a_pruned_model_is_exported() -> None:
    check_export("MobileNetV2")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_is_exported(name: str) -> None:
    check_export(name)


# Exporting, torch itself calls what it deprecates.
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_is_exported_to_onnx(name: str) -> None:
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    model = pruned(name)
    program: Any = torch.onnx.export(exported(model), verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    (argument,) = session.get_inputs()
    found = session.run(None, {argument.name: BATCH.numpy()})
    assert relative_difference(results(model, BATCH), found) <= 1e-5
