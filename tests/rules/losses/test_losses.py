"""Rules about losses and accuracy, on faulty trainings and near misses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.losses.trainings import Case, digits_case, judged, regression_case
from tests.rules.trainings import FAULTY, batches, digits
from vinedresser.capture import Hook
from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.classifier_confusion import ClassifierConfusion
from vinedresser.rules.losses.initial_loss import InitialLoss
from vinedresser.rules.losses.loss_not_decreasing import LossNotDecreasing
from vinedresser.rules.losses.overfitting import Overfitting
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.testing.runs import make_run, step_record


def network(out: int = 10, inner: int = 64, act: type[nn.Module] = nn.ReLU) -> nn.Module:
    return nn.Sequential(nn.Linear(inner, 32), act(), nn.Linear(32, out))


def shuffled(case: Case) -> Case:
    """Return the case with shuffled labels."""
    case.y = case.y[torch.randperm(len(case.y), generator=torch.Generator().manual_seed(0))]
    return case


def one(case: Case, directory: Path, rule: Rule) -> Finding | None:
    findings = judged(case, directory / "run", rule)
    assert len(findings) <= 1
    assert all(finding.rule == rule.name for finding in findings)
    return findings[0] if findings else None


@pytest.mark.thorough
def test_underfitting_is_found_during_the_run(tmp_path: Path) -> None:
    finding = one(digits_case(network(), lr=1e-5, sgd=True), tmp_path, Underfitting())
    assert finding is not None
    assert finding.severity == "stop"
    assert 150 < finding.step < 300
    assert "simple models reach 0.9" in finding.seen
    # The weights do not move, so the learning rate is the fault.
    assert finding.fault == "learning_rate_too_low"
    assert finding.correction == {"lr": 1e-4}


def test_underfitting_is_found_at_the_end(tmp_path: Path) -> None:
    # Too short to be hopeless before its end.
    finding = one(digits_case(network(), lr=3e-3, sgd=True, steps=150), tmp_path, Underfitting())
    assert finding is not None
    assert finding.step == 149


@pytest.mark.thorough
@pytest.mark.parametrize(
    "case",
    [
        lambda: digits_case(network()),
        lambda: regression_case(network(1, 10), steps=300),
        # Nothing can be learned here, so nothing is missing.
        lambda: shuffled(regression_case(network(1, 10), steps=300, lr=1e-3)),
    ],
)
def test_reaching_the_possible_is_no_underfitting(case: Callable[[], Case], tmp_path: Path) -> None:
    assert one(case(), tmp_path, Underfitting()) is None


def test_a_sum_instead_of_a_mean(tmp_path: Path) -> None:
    case = digits_case(network(), nn.CrossEntropyLoss(reduction="sum"), lr=0.5, sgd=True)
    finding = one(case, tmp_path, InitialLoss())
    assert finding is not None
    assert finding.fault == "loss_scale"
    # The factor is the number of rows in a batch.
    assert finding.evidence["factor"] == pytest.approx(32, rel=1e-4)
    assert "multiply the learning rate by 1/32" in finding.remedy


def test_a_sum_with_a_matching_learning_rate_is_ignored(tmp_path: Path) -> None:
    case = digits_case(network(), nn.CrossEntropyLoss(reduction="sum"), lr=3e-3, sgd=True)
    assert one(case, tmp_path, InitialLoss()) is None


@pytest.mark.thorough
def test_a_sum_is_not_why_a_normalising_optimizer_diverges(tmp_path: Path) -> None:
    case = digits_case(network(), nn.CrossEntropyLoss(reduction="sum"), lr=10.0)
    assert one(case, tmp_path, InitialLoss()) is None


def test_large_inputs_explain_a_large_first_loss(tmp_path: Path) -> None:
    case = digits_case(network(), lr=1e-6, sgd=True, steps=40)
    case.x = case.x * 500
    assert one(case, tmp_path, InitialLoss()) is None


@pytest.mark.thorough
@pytest.mark.parametrize("scale", [1.0, 4.0, 30.0])
def test_initial_weights_that_are_too_large(scale: float, tmp_path: Path) -> None:
    class Large(nn.Linear):
        def reset_parameters(self) -> None:
            super().reset_parameters()
            with torch.no_grad():
                self.weight.mul_(scale)

    model = nn.Sequential(Large(64, 32), nn.ReLU(), Large(32, 10))
    finding = one(digits_case(model, lr=3e-3, steps=200), tmp_path, InitialLoss())
    if scale < 30:
        assert finding is None
    else:
        # The training learns all the same.
        assert finding is not None
        # It is no root cause: `bad_initialisation` names these weights.
        assert (finding.severity, finding.fault) == ("warning", "")
        assert finding.threshold == pytest.approx(math.log(10))
        assert finding.step <= 20


@pytest.mark.parametrize(("first", "blamed"), [(0, True), (5, False)])
def test_initial_weights_do_not_explain_a_loss_after_updates(
    first: int, blamed: bool, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    records = []
    for step in range(first, first + 30, 5):
        labels, predictions = random.integers(0, 10, 64), 60 * random.normal(size=(64, 10))
        value = functional.cross_entropy(torch.tensor(predictions), torch.tensor(labels)).item()
        tensors = {"labels/loss": labels, "predictions/loss": predictions}
        tensors["model_inputs/model"] = random.normal(size=(64, 8))
        records.append(step_record(step, scalars={"losses/loss": value}, tensors=tensors))
    losses = {"loss": {"type": "CrossEntropyLoss", "settings": {"reduction": "mean"}}}
    run = make_run(tmp_path / "run", records, losses=losses, framework="torch")
    found = judge(run, [InitialLoss()])
    assert [one.severity for one in found] == ["warning"] * blamed


class AngularMargin(nn.Module):
    """ArcFace: cosines of the angles to the classes, times 64, with a margin at the row's own."""

    def __init__(self) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.randn(10, 32))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        cosines = functional.linear(
            functional.normalize(embeddings), functional.normalize(self.centers)
        ).clamp(-0.999, 0.999)
        own = functional.one_hot(labels, 10)
        return functional.cross_entropy(64 * torch.cos(cosines.acos() + 0.5 * own), labels)


def test_a_margin_raises_the_first_loss(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data, model, loss = digits(), nn.Linear(64, 32), AngularMargin()
    optimizer = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=3e-3)
    values = []
    collections = capture_for([InitialLoss()]).collections
    with Hook(tmp_path / "run", collections=collections) as hook:
        hook.watch(model, optimizer=optimizer)
        for rows in itertools.islice(batches(len(data.x), 32), 100):
            optimizer.zero_grad()
            value = loss(model(data.x[rows]), data.y[rows])
            value.backward()
            optimizer.step()
            values.append(value.item())
    assert values[0] > 30
    assert values[-1] < values[0] / 4
    assert judge(open_run(tmp_path / "run"), [InitialLoss()]) == []


def test_confused_classes_are_reported(tmp_path: Path) -> None:
    case = digits_case(network(3), batch=64, steps=400)
    # Classes 1 and 2 cannot be separated; all three are equally frequent.
    case.y = case.y % 3
    case.x = nn.functional.one_hot(case.y, 3).float()
    case.x[case.y == 2] = torch.tensor([0.0, 1.0, 0.0])
    case.model = nn.Linear(3, 3)
    finding = one(case, tmp_path, ClassifierConfusion())
    assert finding is not None
    assert finding.severity == "info"
    assert {frozenset(cell[:2]) for cell in finding.evidence["cells"]} == {frozenset({1, 2})}


def test_embeddings_are_no_classes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    places = random.permutation(32)[:10]
    records = []
    for step in range(0, 400, 5):
        labels = random.integers(0, 10, 64)
        embeddings = random.normal(size=(64, 32))
        # Rows of a class are alike.
        embeddings[np.arange(64), places[labels]] += 4
        tensors = {"labels/loss": labels, "predictions/loss": embeddings}
        value = 1 / (1 + step)
        records.append(step_record(step, scalars={"losses/loss": value}, tensors=tensors))
    run = make_run(tmp_path / "run", records, framework="torch")
    assert judge(run, [ClassifierConfusion()]) == []


@pytest.mark.thorough
def test_separated_classes_are_ignored(tmp_path: Path) -> None:
    case = digits_case(network(), batch=64, steps=600, lr=1e-2)
    assert one(case, tmp_path, ClassifierConfusion()) is None


@pytest.mark.thorough
def test_no_improvement_is_a_hint(tmp_path: Path) -> None:
    # The noise floor is reached soon.
    case = regression_case(nn.Linear(10, 1), lr=0.05, steps=800, batch=350, evaluate=20)
    finding = one(case, tmp_path, Overfitting())
    assert finding is not None
    assert (finding.severity, finding.fault) == ("info", "")
    assert finding.step - finding.since == 10 * 20


def test_improvement_is_no_overfitting(tmp_path: Path) -> None:
    case = digits_case(network(), lr=0.05, sgd=True, steps=400, evaluate=20)
    assert one(case, tmp_path, Overfitting()) is None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "fault", "rate"),
    [("lr_adam", "learning_rate_too_high", 0.1), ("lr_too_low", "learning_rate_too_low", 1e-5)],
)
def test_loss_not_decreasing_reports_the_fault(
    name: str, fault: str, rate: float, tmp_path: Path
) -> None:
    run = open_run(FAULTY[name].run(tmp_path / "run"))
    (finding,) = judge(run, [LossNotDecreasing()])
    assert finding.fault == fault
    assert finding.correction == {"lr": rate}


@pytest.mark.parametrize(("height", "last", "found"), [(1e6, 2.3, 1), (1e6, 1.9, 0), (100, 2.3, 0)])
def test_a_short_run_that_has_not_recovered_from_its_first_steps(
    height: float, last: float, found: int, tmp_path: Path
) -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, 66)
    losses = [2.3, height, height / 10, height / 1000, 8.0, 3.0, *(last + noise).tolist()]
    records = [
        step_record(step, scalars={"losses/loss": value}) for step, value in enumerate(losses)
    ]
    findings = judge(make_run(tmp_path / "run", records), [LossNotDecreasing()])
    assert len(findings) == found
    for finding in findings:
        assert (finding.step, finding.fault) == (71, "learning_rate_too_high")
        assert "has only come back to 2.3" in finding.seen or "stays at 2.3" in finding.seen


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Underfitting(patience=0), "patience = 0"),
        (lambda: InitialLoss(factor=1), "factor = 1"),
        (lambda: InitialLoss(excess=0), "excess = 0"),
        (lambda: ClassifierConfusion(share=1), "share = 1"),
        (lambda: Overfitting(plateau=1), "plateau = 1"),
        (lambda: Overfitting(delta=1), "delta = 1"),
    ],
)
def test_invalid_parameters_raise(make: Callable[[], Rule], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
