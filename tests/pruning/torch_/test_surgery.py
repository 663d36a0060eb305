"""Removing channels from PyTorch models."""

from __future__ import annotations

import copy
import threading
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules

from tests.pruning.torch_ import zoo, zoo_attention
from tests.pruning.torch_.reference import plan_of
from vinedresser.errors import PruningError
from vinedresser.pruning.plan import Plan, plan_from_json
from vinedresser.pruning.proof import prove
from vinedresser.pruning.torch_ import TorchPrunable, removed


def small(name: str = "plain") -> tuple[TorchPrunable, Plan]:
    """Return a model of the zoo and a plan for it."""
    torch.manual_seed(0)
    prunable = TorchPrunable((zoo.ZOO | zoo_attention.ZOO)[name](), torch.randn(2, 3, 16, 16))
    return prunable, plan_of(prunable)


def test_the_model_stays_as_it_is() -> None:
    torch.manual_seed(0)
    model = zoo.ZOO["MobileNetV2"]().train()
    before = copy.deepcopy(model.state_dict())
    tensors = dict(model.named_parameters())
    prunable = TorchPrunable(model, torch.randn(2, 3, 16, 16))
    plan = plan_of(prunable)
    prove(prunable, plan, prunable.removed(plan), count=plan.count)
    assert all(torch.equal(before[name], one) for name, one in model.state_dict().items())
    assert all(one is tensors[name] for name, one in model.named_parameters())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    # Compiled models would warn of it.
    assert not modules._has_any_global_hook()


def test_layers_know_their_sizes() -> None:
    prunable, plan = small("MobileNetV2")
    for module in prunable.removed(plan).modules():
        if isinstance(module, nn.Conv2d):
            weight = (module.out_channels, module.in_channels // module.groups)
            assert module.weight.shape[:2] == weight
        elif isinstance(module, nn.BatchNorm2d):
            assert module.num_features == len(module.weight)
        elif isinstance(module, nn.Linear):
            assert module.weight.shape == (module.out_features, module.in_features)


def test_modes_types_and_frozen_parameters_are_kept() -> None:
    torch.manual_seed(0)
    model: Any = zoo.ZOO["plain"]().double().train()
    model[0][1].eval()
    model[0][0].weight.requires_grad_(False)
    prunable = TorchPrunable(model, torch.randn(2, 3, 16, 16, dtype=torch.float64))
    pruned: Any = prunable.removed(plan_of(prunable))
    assert [module.training for module in pruned.modules()] == [
        module.training for module in model.modules()
    ]
    assert not pruned[0][0].weight.requires_grad
    assert pruned[2][0].weight.requires_grad
    assert pruned[0][0].weight.dtype == torch.float64
    assert pruned[0][0].weight.shape == (6, 3, 3, 3)


@pytest.mark.thorough
def test_a_plan_and_a_state_rebuild_the_model_without_a_trace() -> None:
    prunable, plan = small("ViT, fused")
    pruned = prunable.removed(plan)
    torch.manual_seed(1)
    rebuilt = removed(
        zoo_attention.ZOO["ViT, fused"](), plan_from_json(plan.to_json(), source="plan.json")
    )
    rebuilt.load_state_dict(pruned.state_dict())
    example = torch.randn(3, 3, 16, 16)
    assert torch.equal(rebuilt.eval()(example), pruned.eval()(example))


def test_a_plan_for_another_architecture_is_refused() -> None:
    _, plan = small()
    with pytest.raises(PruningError, match="the plan is for another architecture"):
        removed(zoo.ZOO["VGG"](), plan)


def test_an_optimizer_made_before_does_not_train_the_pruned_model() -> None:
    """The parameters are new objects, so the optimizer has to be made anew."""
    prunable, plan = small()
    stale = torch.optim.SGD(prunable.model.parameters(), lr=0.1)
    pruned = prunable.removed(plan).train()

    def step(optimizer: torch.optim.Optimizer) -> int:
        before = [parameter.detach().clone() for parameter in pruned.parameters()]
        pruned.zero_grad()
        pruned(torch.randn(4, 3, 16, 16)).square().sum().backward()
        optimizer.step()
        after = pruned.parameters()
        return sum(not torch.equal(*pair) for pair in zip(before, after, strict=True))

    assert step(stale) == 0
    assert step(torch.optim.SGD(pruned.parameters(), lr=0.1)) == len(list(pruned.parameters()))


def _wrong_reader(plan: Plan) -> Plan:
    """Return a plan in which a reader loses other channels than those that go."""
    tensors = copy.deepcopy(plan.tensors)
    gone = tensors["2.0.weight"]["1"]
    kept = [one for one in range(8) if one not in gone]
    tensors["2.0.weight"]["1"] = kept[: len(gone)]
    return replace(plan, tensors=tensors)


def test_a_plan_that_is_wrong_is_not_proved() -> None:
    prunable, plan = small()
    wrong = _wrong_reader(plan)
    with pytest.raises(PruningError, match=r"masked original, float32: [\d.e-]+, at most 1e-05"):
        prove(prunable, wrong, prunable.removed(wrong), count=plan.count)


def test_a_wrong_count_and_other_weights_are_not_proved() -> None:
    prunable, plan = small()
    pruned = prunable.removed(plan)
    with pytest.raises(PruningError, match="filters removed, besides those asked for: 1"):
        prove(prunable, plan, pruned, count=plan.count - 1)
    with torch.no_grad():
        next(pruned.parameters()).mul_(1.001)
    with pytest.raises(PruningError, match="a replay of the plan does not reproduce"):
        prove(prunable, plan, pruned, count=plan.count)


def _example() -> torch.Tensor:
    return torch.randn(2, 3, 16, 16)


@pytest.mark.parametrize(
    ("model", "example", "message"),
    [
        (nn.Conv2d(4, 8, 3), _example(), "does not run on the example: RuntimeError: Given groups"),
        (nn.Conv2d(3, 8, 3), "photo.png", "the example is of type str; it must be a tensor"),
        (nn.Conv2d(3, 8, 3), (3, "x"), "the example has no tensor"),
        (nn.ReLU(), _example(), "nothing to prune"),
        (nn.LazyConv2d(8, 3), _example(), "uninitialised parameters"),
    ],
)
def test_what_cannot_be_pruned_is_refused(model: nn.Module, example: object, message: str) -> None:
    with pytest.raises(PruningError, match=message):
        TorchPrunable(model, example)


class Strange(nn.Module):
    """Returns an object."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> Any:
        self.conv(x)
        return object()


def test_a_model_that_cannot_be_copied_is_refused() -> None:
    model = nn.Conv2d(3, 8, 3)
    vars(model)["lock"] = threading.Lock()
    with pytest.raises(PruningError, match="the model cannot be copied: TypeError"):
        TorchPrunable(model, _example())


def test_a_model_that_computes_nan_is_not_proved() -> None:
    prunable, plan = small()
    with torch.no_grad():
        next(prunable.model.parameters())[0] = float("nan")
    with pytest.raises(PruningError, match="the model computes NaN for the example"):
        prove(prunable, plan, prunable.removed(plan), count=plan.count)


def test_a_model_may_change_its_input() -> None:
    example = _example()
    before = example.clone()
    prunable = TorchPrunable(nn.Sequential(nn.ReLU(inplace=True), zoo.ZOO["plain"]()), example)
    plan = plan_of(prunable)
    prove(prunable, plan, prunable.removed(plan), count=plan.count)
    assert torch.equal(example, before)


def test_a_model_that_returns_something_else_is_refused() -> None:
    with pytest.raises(PruningError, match="the model returns object; it must return a tensor"):
        TorchPrunable(Strange(), _example())


def test_arguments_by_position_and_by_name() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)
            self.last = nn.Conv2d(8, 2, 1)

        def forward(self, x: torch.Tensor, scale: float = 1.0) -> Any:
            return self.last(self.conv(x) * scale)

    for example in ((_example(), 2.0), {"x": _example(), "scale": 2.0}):
        prunable = TorchPrunable(Two(), example)
        assert [group.name for group in prunable.groups if not group.locked] == ["conv"]


def test_multiplications_are_counted_for_one_example() -> None:
    prunable, _ = small()
    # 16 x 16 pixels, then 8 x 8 after pooling; the classifier once.
    assert prunable.uses == {"0.0.weight": 256, "2.0.weight": 64, "5.weight": 1}
