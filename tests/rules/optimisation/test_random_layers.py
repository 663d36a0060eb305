"""Layers that are not trained and still have their random initial values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.rules.optimisation.test_untrained_parameters import Net, judged, some
from vinedresser.capture import open_run


def test_a_head_on_layers_of_random_values_is_a_warning(tmp_path: Path) -> None:
    finding, *at_end = judged(tmp_path / "run", Net, some("head"))
    assert {one.severity for one in at_end} <= {"stop"}
    assert (finding.severity, finding.step) == ("warning", 5)
    assert finding.evidence["names"] == ["weights/first.weight", "weights/second.weight"]
    assert finding.cause.endswith("still have their random initial values")


@pytest.mark.thorough
@pytest.mark.parametrize("fresh", [True, False])
def test_frozen_layers_of_random_values_are_a_warning_if_the_model_does_not_learn(
    fresh: bool, tmp_path: Path
) -> None:
    def narrow() -> nn.Module:
        # Hardly anything of the digits reaches the head.
        layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2), nn.Linear(2, 10))
        for place in (0, 2):
            layers[place].requires_grad_(False)
            if not fresh:
                nn.init.orthogonal_(layers.get_parameter(f"{place}.weight"))
        return layers

    def plain(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model[3].parameters(), lr=0.01)  # type: ignore[index]

    findings = judged(tmp_path / "run", narrow, plain, 300)
    assert [finding.evidence["trouble"] for finding in findings] == ["frozen"] * fresh
    assert {finding.severity for finding in findings} <= {"warning"}


@pytest.mark.thorough
def test_frozen_layers_of_random_values_that_suffice_are_no_alarm(tmp_path: Path) -> None:
    def random_features() -> nn.Module:
        model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
        model[0].requires_grad_(False)
        return model

    def of_head(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.get_submodule("2").parameters(), lr=0.02)

    assert judged(tmp_path / "run", random_features, of_head, 200) == []


@pytest.mark.thorough
def test_layers_that_are_unfrozen_later_are_no_alarm_when_the_run_is_judged_afterwards(
    tmp_path: Path,
) -> None:
    second: list[torch.optim.Optimizer] = []

    def trained_before() -> nn.Module:
        model = Net()
        nn.init.orthogonal_(model.first.weight)
        model.first.requires_grad_(False)
        return model

    def of_the_others(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(
            [parameter for parameter in model.parameters() if parameter.requires_grad], lr=1e-3
        )

    def unfreeze(model: nn.Module, step: int) -> None:
        if step == 130:
            first = model.get_submodule("first").requires_grad_(True)
            second.append(torch.optim.Adam(first.parameters(), lr=1e-3))
        elif step > 130:
            # Of the gradients of the step before.
            second[0].step()
            second[0].zero_grad()

    run = tmp_path / "run"
    assert judged(run, trained_before, of_the_others, 200, unfreeze) == []
    assert open_run(run).info.frozen == ["weights/first.weight", "biases/first.bias"]
