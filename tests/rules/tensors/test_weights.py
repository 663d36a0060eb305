"""Initial weights and size of updates, as opposed to trainings that learn anyway."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.rules.inside_trainings import captured, found, stack
from tests.rules.trainings import adam, sgd
from vinedresser.rules.causes.root_cause import root_causes
from vinedresser.rules.registry import rules_from_table
from vinedresser.rules.signals.parameters.weight_scale import weight_scales
from vinedresser.rules.tensors.bad_initialisation import BadInitialisation
from vinedresser.rules.tensors.identical_units import IdenticalUnits
from vinedresser.testing.runs import make_run, step_record

DEEP = (64, *[32] * 8, 10)


def normal(std: float) -> object:
    """Return an initialisation with normal values."""
    return lambda weight: nn.init.normal_(weight, std=std)


@pytest.mark.thorough
def test_small_weights_are_reported_with_the_size_to_use(tmp_path: Path) -> None:
    rule = BadInitialisation()
    model = lambda: stack(DEEP, nn.ReLU, normal(0.01))  # type: ignore[arg-type]  # noqa: E731
    (finding,) = found(captured(tmp_path, [rule], model, adam(1e-3)), rule)
    assert (finding.fault, finding.since) == ("bad_initialisation", 0)
    # sqrt(2 / 32), He initialisation of a layer with 32 inputs.
    assert "a standard deviation of 0.25 (before relu)" in finding.remedy
    assert finding.value == pytest.approx(0.01 * math.sqrt(32), rel=0.1)


@pytest.mark.thorough
def test_large_weights_are_found(tmp_path: Path) -> None:
    rule = BadInitialisation()
    model = lambda: stack(DEEP, nn.Tanh, normal(1.5))  # type: ignore[arg-type]  # noqa: E731
    (finding,) = found(captured(tmp_path, [rule], model, sgd(0.01)), rule)
    assert finding.fault == "bad_initialisation"
    assert "too large" in finding.cause


@pytest.mark.thorough
def test_zero_weights_are_the_root_cause(tmp_path: Path) -> None:
    rules = [BadInitialisation(), IdenticalUnits()]
    model = lambda: stack((64, 32, 32, 10), nn.ReLU, nn.init.zeros_)  # noqa: E731
    findings = found(captured(tmp_path, rules, model, adam(1e-3)), *rules)
    assert {finding.fault for finding in findings} == {"bad_initialisation", "identical_units"}
    (root,) = root_causes(findings)
    assert root.finding.fault == "bad_initialisation"
    assert "are all zero" in root.finding.seen


def test_a_zero_last_layer_and_large_weights_that_learn_are_ignored(tmp_path: Path) -> None:
    rules = [BadInitialisation(), IdenticalUnits(), *rules_from_table({"update_ratio": {}})]

    def model() -> nn.Module:
        net = stack((64, 64, 10), nn.Tanh, normal(0.5))  # type: ignore[arg-type]
        nn.init.zeros_(net[-1].weight)  # type: ignore[arg-type]
        return net

    assert found(captured(tmp_path, rules, model, adam(5e-3)), *rules) == []


@pytest.mark.thorough
def test_small_weights_with_normalisation_are_ignored(tmp_path: Path) -> None:
    """The same weights with random labels: the initialisation is not the cause."""
    rule = BadInitialisation()

    def model() -> nn.Module:
        layers = list(stack(DEEP, nn.ReLU, normal(0.01)))  # type: ignore[arg-type]
        return nn.Sequential(*layers[:1], nn.LayerNorm(32), *layers[1:])

    assert found(captured(tmp_path, [rule], model, sgd(1e-9)), rule) == []


def test_equal_units_stay_equal(tmp_path: Path) -> None:
    rule = IdenticalUnits()
    constant = lambda weight: nn.init.constant_(weight, 0.1)  # noqa: E731
    model = lambda: stack((64, 32, 32, 10), nn.Tanh, constant)  # noqa: E731
    warning, stop = found(captured(tmp_path, [rule], model, adam(1e-3)), rule)
    assert (warning.severity, warning.step) == ("warning", 10)
    assert (stop.fault, stop.tensor) == ("identical_units", "weights/0.weight")


class Distribution(nn.Module):
    """A layer whose weights are normally distributed, after Blundell et al. (2015), 3.2.

    Args:
        inputs: number of inputs.
        outputs: number of units.
        start: initial values of the means.
    """

    def __init__(self, inputs: int, outputs: int, start: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.empty(outputs, inputs))
        start(self.mean)
        self.rho = nn.Parameter(torch.full((outputs, inputs), -4.0))

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.randn_like(self.mean) * nn.functional.softplus(self.rho)
        return x @ (self.mean + noise).T


@pytest.mark.thorough
@pytest.mark.parametrize("equal", [False, True])
def test_spreads_may_start_equal_but_not_with_the_means(tmp_path: Path, equal: bool) -> None:
    """Noise would separate the units, so it is 0 where the means are equal."""
    rule = IdenticalUnits()

    def model() -> nn.Module:
        start = nn.init.zeros_ if equal else normal(0.2)
        layers = [Distribution(64, 32, start), nn.Tanh(), Distribution(32, 10, start)]  # type: ignore[arg-type]
        net = nn.Sequential(*layers)
        if equal:
            for layer in (layers[0], layers[2]):
                nn.init.constant_(layer.rho, -200.0)  # type: ignore[arg-type]
        return net

    findings = found(captured(tmp_path, [rule], model, adam(1e-3)), rule)
    assert {finding.fault for finding in findings} == ({"identical_units"} if equal else set())


def test_equal_units_that_are_not_trained_are_ignored(tmp_path: Path) -> None:
    def model() -> nn.Module:
        # A fixed average of neighbours.
        mean = nn.Linear(64, 64, bias=False).requires_grad_(requires_grad=False)
        nn.init.constant_(mean.weight, 1 / 64)
        return nn.Sequential(mean, *stack((64, 32, 10), nn.Tanh))

    rules = [IdenticalUnits(), BadInitialisation()]
    assert found(captured(tmp_path, rules, model, sgd(1e-9)), *rules) == []


@pytest.mark.parametrize("grow", [False, True])
def test_weights_that_are_far_too_small_and_stay_so_are_warned_of(
    tmp_path: Path,
    grow: bool,
) -> None:
    """Adam makes them grow at once, and the training learns."""
    rule = BadInitialisation()
    tiny = normal(1e-3)
    model = lambda: stack((64, 32, 32, 10), nn.ReLU, tiny)  # type: ignore[arg-type]  # noqa: E731
    optimizer = adam(1e-2) if grow else sgd(1e-2)
    findings = found(captured(tmp_path, [rule], model, optimizer, steps=100, total=1000), rule)
    assert [(finding.severity, finding.step) for finding in findings] == (
        [] if grow else [("warning", 40)]
    )
    assert all("too small" in finding.cause for finding in findings)


def test_each_of_several_models_has_its_scale(tmp_path: Path) -> None:
    usual = {"l2": 5.66, "std": 0.1, "mean": 0.0}
    large = {name: 100 * value for name, value in usual.items()}
    layers = {
        f"{model}.{place}": ["Linear", ""] for model in ("critic", "maker") for place in "012"
    }
    modules = {
        "critic": ["Sequential", "", "model"],
        "maker": ["Sequential", "", "model"],
        **layers,
    }
    weights = {f"weights/{path}.weight": large if "maker" in path else usual for path in layers}
    made = [step_record(0, reductions=weights)]
    rule = BadInitialisation()
    (finding,) = found(make_run(tmp_path / "run", made, modules=modules), rule)
    assert finding.tensor.startswith("weights/maker.")
    assert finding.severity == "warning"


class Adapted(nn.Module):
    """A fixed layer with an adapter of low rank, whose second factor begins as zero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fixed = nn.Linear(width, width).requires_grad_(requires_grad=False)
        self.down = nn.Linear(width, 4, bias=False)
        self.up = nn.Linear(4, width, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fixed(x) + self.up(self.down(x))
        return out


def test_adapters_that_begin_as_zero_are_ignored(tmp_path: Path) -> None:
    def model() -> nn.Module:
        return nn.Sequential(Adapted(64), nn.ReLU(), Adapted(64), nn.ReLU(), nn.Linear(64, 10))

    rules = [BadInitialisation(), IdenticalUnits()]
    assert found(captured(tmp_path, rules, model, adam(1e-3), steps=100), *rules) == []


def test_units_that_become_equal_are_ignored(tmp_path: Path) -> None:
    """One far too large step moves all units to the direction of one gradient."""
    rule = IdenticalUnits()
    model = lambda: stack((64, 32, 32, 10), nn.ReLU)  # noqa: E731
    run = captured(tmp_path, [rule], model, sgd(1e4), steps=200, total=200)
    assert found(run, rule) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rate", "fault"), [(1e-7, "learning_rate_too_low"), (1.0, "learning_rate_too_high")]
)
def test_a_learning_rate_fault_shows_in_the_updates(
    tmp_path: Path, rate: float, fault: str
) -> None:
    rules = rules_from_table({"update_ratio": {}})
    model = lambda: stack((64, 32, 32, 10), nn.ReLU)  # noqa: E731
    finding = found(captured(tmp_path, rules, model, adam(rate)), *rules)[-1]
    assert (finding.fault, finding.severity) == (fault, "stop")
    corrected = finding.correction["lr"]
    said = re.search(r"lr ([\d.e+-]+) instead of ([\d.e+-]+)", finding.remedy)
    assert said is not None
    assert [float(group) for group in said.groups()] == [pytest.approx(corrected), rate]
    # Within a factor of ten of what trains such a network.
    assert 1e-4 <= corrected <= 1e-2


@pytest.mark.thorough
def test_usual_updates_are_ignored(tmp_path: Path) -> None:
    rules = [*rules_from_table({"update_ratio": {}}), BadInitialisation(), IdenticalUnits()]

    def model() -> nn.Module:
        return nn.Sequential(Shuffled(), *stack((64, 64, 10), nn.ReLU))

    assert found(captured(tmp_path, rules, model, adam(1e-3)), *rules) == []


class Shuffled(nn.Module):
    """Replaces the inputs of each row by those of its neighbour."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.roll(1, 0)


def test_weight_scale_is_that_of_the_matrix(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    dense = generator.normal(0.02, 0.3, (48, 48))
    reductions = {
        "weights/dense.weight": statistics(dense),
        "weights/zero.weight": statistics(np.zeros((4, 4))),
        "weights/norm.weight": statistics(np.ones(7)),
        "weights/words.weight": statistics(generator.normal(size=(100, 16))),
        "weights/broken.weight": statistics(np.full((2, 2), math.nan)),
    }
    run = make_run(tmp_path / "run", [step_record(0, reductions=reductions)])
    (step,) = run.follow()
    scales = weight_scales(step, {"words": ["Embedding", ""]})
    assert set(scales) == {"weights/dense.weight", "weights/zero.weight"}
    rms = math.sqrt((dense**2).mean())
    assert scales["weights/dense.weight"] == pytest.approx((rms * math.sqrt(48), rms, 48.0))
    assert scales["weights/zero.weight"] == (0.0, 0.0, 0.0)


def statistics(values: np.ndarray) -> dict[str, float]:
    """Return the statistics that the rules about weights need."""
    norm = math.sqrt((values**2).sum())
    return {"l2": norm, "std": float(values.std()), "mean": float(values.mean())}
