"""A network trained on ImageNet, as PyPI has it, and two photographs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from tests.pruning.torch_.efficientnet import cut, photographs, pretrained
from vinedresser.pruning import prune
from vinedresser.pruning.torch_ import TorchPrunable

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("criterion", ["taylor_activation", "taylor_signed"])
@pytest.mark.parametrize("share", ["5%", "10%"])
def test_a_trained_network_keeps_its_classes_without_training(share: str, criterion: str) -> None:
    model = pretrained()
    centre = torch.cat([cut(photograph, 27, 134, 373) for photograph in photographs()])
    with torch.no_grad():
        classes = model(centre).argmax(1)

    def losses(model: nn.Module) -> Iterator[Tensor]:
        draw = torch.Generator().manual_seed(0)
        for _ in range(4):
            top, left, more = (int(torch.randint(100, (1,), generator=draw)) for _ in range(3))
            place = top, 2 * left, 227 + more
            squares = torch.cat([cut(photograph, *place) for photograph in photographs()])
            yield F.cross_entropy(model(squares), classes)

    groups = TorchPrunable(model, centre[:1]).groups
    assert [group.name for group in groups if group.locked] == ["_fc"]
    free = sum(group.size for group in groups if not group.locked)
    pruned = prune(model, centre[:1], share, criterion=criterion, losses=losses)
    assert pruned.plans[0].count == free * int(share.removesuffix("%")) // 100
    assert [check.limit for check in pruned.proof.checks] == [0, 1e-5, 1e-12, 1e-12, 0]
    with torch.no_grad():
        assert pruned.model(centre).argmax(1).tolist() == classes.tolist()
