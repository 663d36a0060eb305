"""Rules about labels: constant, sorted, wrong, rare, or class numbers used as quantities."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.rules.data.trainings import found_in, network, relabelled, shuffled, sorted_batches
from tests.rules.trainings import Data, adam, batches, diabetes, digits, evaluate, sgd
from vinedresser.capture import Hook
from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.causes.root_cause import root_causes
from vinedresser.rules.data.class_imbalance import ClassImbalance
from vinedresser.rules.data.corrupt_labels import CorruptLabels
from vinedresser.rules.data.single_label import SingleLabel
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.class_numbers import order_of_classes
from vinedresser.rules.losses.loss_output_mismatch import LossOutputMismatch
from vinedresser.rules.registry import RULES
from vinedresser.store.reading.reader import open_run
from vinedresser.testing.runs import make_run, step_record


@pytest.mark.thorough
@pytest.mark.parametrize("rate", [1e-3, 1e-2])
@pytest.mark.parametrize("size", [25, 1697])
def test_labels_that_are_shuffled_anew_stop_the_run_whatever_dies_of_it(
    rate: float, size: int, tmp_path: Path
) -> None:
    """Shuffled within each batch, or over all rows in each epoch."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = digits()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer, loss = torch.optim.Adam(model.parameters(), lr=rate), nn.CrossEntropyLoss()
    rules = [kind() for kind in RULES.values()]
    with Hook(tmp_path / "run", collections=capture_for(rules).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for _ in range(10):
            order = torch.randperm(len(data.x))
            mixed = [part[torch.randperm(len(part))] for part in order.split(size)]
            for rows, others in zip(order.split(64), torch.cat(mixed).split(64), strict=True):
                optimizer.zero_grad()
                loss(model(data.x[rows]), data.y[others]).backward()
                optimizer.step()
    findings = judge(open_run(tmp_path / "run"), rules)
    (root,) = (cause for cause in root_causes(findings) if cause.finding.severity != "info")
    assert (root.finding.rule, root.finding.severity) == ("corrupt_labels", "stop")
    assert "rows came again, with labels" in root.finding.seen


def test_a_single_label_is_found_after_1000_rows(tmp_path: Path) -> None:
    data = relabelled(torch.zeros_like)
    (finding,) = found_in(tmp_path, [SingleLabel()], data, network())
    assert (finding.fault, finding.severity) == ("single_label", "warning")
    assert finding.step == 155  # 32 rows at every fifth step: 1,024 rows
    assert "all 1024 labels" in finding.seen


@pytest.mark.thorough
def test_a_constant_label_of_a_contrastive_loss_is_ignored(tmp_path: Path) -> None:
    # A contrastive loss: the first of ten rows matches a noisy copy.
    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(64, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            own = self.embed(x + 0.5 * torch.randn(x.shape))
            others = self.embed(x)
            scores = own @ others.T
            shifts = (torch.arange(10)[None] + torch.arange(len(x))[:, None]) % len(x)
            chosen: torch.Tensor = scores.gather(1, shifts)
            return chosen

    data = relabelled(torch.zeros_like)
    assert found_in(tmp_path, [SingleLabel()], data, Pairs, optimizer=adam(1e-3)) == []


def test_the_labels_of_adversaries_are_ignored(tmp_path: Path) -> None:
    # The first batch of each step holds real rows only, which the critic recognizes.
    critic, generator = nn.Sequential(nn.Linear(2, 1), nn.Sigmoid()), nn.Linear(2, 2)
    loss = nn.BCELoss()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.5) for one in (critic, generator)]
    rules = [SingleLabel(rows=64)]
    with Hook(tmp_path / "run", collections=capture_for(rules).collections) as hook:
        hook.watch(critic, loss=loss, optimizer=optimizers[0], name="critic")
        hook.watch(generator, optimizer=optimizers[1], name="generator")
        for _ in range(60):
            fake = generator(torch.randn(16, 2))
            loss(critic(torch.full((16, 2), 3.0)), torch.ones(16, 1)).backward()
            loss(critic(fake), torch.zeros(16, 1)).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    assert judge(open_run(tmp_path / "run"), rules) == []


@pytest.mark.parametrize("told", [True, False])
def test_the_labels_of_a_part_of_a_loss_are_ignored(told: bool, tmp_path: Path) -> None:
    """Negative samples: one call of the loss has ones, and the next one zeros."""
    torch.manual_seed(0)
    model, loss = nn.Linear(2, 1), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    rules = [SingleLabel(rows=64)]
    with Hook(tmp_path / "run", collections=capture_for(rules).collections) as hook:
        hook.watch(model, loss=loss if told else None, optimizer=optimizer)
        for _ in range(60):
            near, far = model(torch.full((16, 2), 3.0)), model(torch.randn(16, 2))
            value = loss(near, torch.ones(16, 1)) + loss(far, torch.zeros(16, 1))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    assert judge(open_run(tmp_path / "run"), rules) == []


def test_batches_sorted_by_class_are_found(tmp_path: Path) -> None:
    data = digits()
    (finding,) = found_in(
        tmp_path,
        [SingleLabel()],
        data,
        network(),
        order=sorted_batches(data.y, 32),
        every=50,
    )
    assert finding.fault == "single_label"
    assert finding.statistic == "order"
    assert finding.value > 0.5
    assert "shuffle" in finding.remedy


@pytest.mark.thorough
def test_shuffled_batches_with_a_rare_class_are_ignored(tmp_path: Path) -> None:
    data = relabelled(lambda y: (y == 0).long())
    assert found_in(tmp_path, [SingleLabel()], data, network(out=2)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("classes", [10, 70])
def test_memorised_shuffled_labels_are_found(classes: int, tmp_path: Path) -> None:
    data = relabelled(lambda y: shuffled(torch.arange(len(y)) % classes))
    model = network(inner=128, out=classes)
    (finding,) = found_in(tmp_path, [CorruptLabels()], data, model, steps=600, batch=64, every=20)
    assert (finding.fault, finding.severity) == ("corrupt_labels", "warning")
    assert finding.statistic == "gain"
    assert 180 <= finding.step < 595
    assert f"chance level: {math.log(classes):.1f}" in finding.seen
    # Seven rows of a class tell simple models little.
    assert ("70 classes need more rows" in finding.cause) == (classes == 70)


def test_memorised_labels_of_unknown_rows_may_be_too_few(tmp_path: Path) -> None:
    """Large inputs are not captured, so that no simple model tells whether they tell anything."""
    generator = np.random.default_rng(0)
    records = []
    for step in range(0, 400, 5):
        labels = np.eye(5)[generator.integers(5, size=32)]
        tensors = {"labels/batch": labels, "predictions/batch": 0.75 * labels + 0.05}
        records.append(step_record(step, scalars={"losses/loss": 0.223}, tensors=tensors))
        if step % 20 == 15:
            records.append(step_record(step, mode="eval", scalars={"losses/loss": 1.7}))
    run = make_run(
        tmp_path / "run",
        records,
        framework="keras",
        losses={"loss": {"type": "categorical_crossentropy", "settings": {}}},
    )
    (finding,) = judge(run, [CorruptLabels()])
    assert (finding.statistic, finding.severity) == ("gain", "warning")
    assert "or there are too few rows" in finding.cause


@pytest.mark.thorough
@pytest.mark.parametrize(("every", "found"), [(150, ["corrupt_labels"]), (300, [])])
def test_at_the_end_three_evaluations_show_memorised_labels(
    every: int, found: list[str], tmp_path: Path
) -> None:
    """The evaluation before the first step does not count."""
    data, rules = relabelled(shuffled), [CorruptLabels()]
    findings = found_in(tmp_path, rules, data, network(inner=128), steps=600, batch=64, every=every)
    assert [finding.fault for finding in findings] == found


@pytest.mark.thorough
def test_an_evaluation_of_another_model_says_nothing(tmp_path: Path) -> None:
    data = relabelled(shuffled)
    torch.manual_seed(0)
    models = [network(inner=128)() for _ in range(2)]
    optimizers = [adam(3e-3)(models[0]), sgd(1e-6)(models[1])]
    rules, loss = [CorruptLabels()], nn.CrossEntropyLoss()
    rows = batches(len(data.x), 64)
    with Hook(
        tmp_path / "run", collections=capture_for(rules).collections, total_steps=600
    ) as hook:
        for model, optimizer, name in zip(models, optimizers, "ab", strict=True):
            hook.watch(model, loss=loss, optimizer=optimizer, name=name)
        for step in range(600):
            if step % 20 == 0:
                evaluate(hook, models[1], loss, data)
            chosen = next(rows)
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                loss(model(data.x[chosen]), data.y[chosen]).backward()
                optimizer.step()
    assert judge(open_run(tmp_path / "run"), rules) == []


@pytest.mark.thorough
def test_unlearned_shuffled_labels_are_found_without_evaluations(
    tmp_path: Path,
) -> None:
    data = relabelled(shuffled)
    (finding,) = found_in(
        tmp_path, [CorruptLabels()], data, network(inner=4), optimizer=sgd(0.01), steps=400
    )
    assert finding.statistic == "loss"
    assert finding.confidence <= 0.6


@pytest.mark.thorough
def test_shuffled_regression_targets_are_found(tmp_path: Path) -> None:
    data = diabetes()
    mean, std = data.y.mean(), data.y.std()
    made = Data(data.x, shuffled((data.y - mean) / std), data.x_eval, (data.y_eval - mean) / std)
    (finding,) = found_in(
        tmp_path,
        [CorruptLabels()],
        made,
        network(10, 1, 64),
        loss=nn.MSELoss(),
        steps=600,
        every=20,
    )
    assert finding.statistic == "gain"


@pytest.mark.thorough
def test_wrong_training_labels_are_found_by_neighbours(tmp_path: Path) -> None:
    data = relabelled(lambda y: shuffled(y, 0.6), evaluated=False)
    order = torch.randperm(len(data.x), generator=torch.Generator().manual_seed(3))
    data = replace(data, x=data.x[order], y=data.y[order]).subset(700)
    (finding,) = found_in(
        tmp_path,
        [CorruptLabels()],
        data,
        network(inner=128),
        optimizer=adam(1e-2),
        steps=500,
        batch=64,
        every=25,
    )
    assert finding.statistic == "agreement"
    assert finding.value < finding.threshold


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("inner", "rows", "rate"), [(32, 1437, 3e-3), (256, 100, 1e-2), (4, 1437, 1e-5)]
)
def test_correct_labels_are_ignored(inner: int, rows: int, rate: float, tmp_path: Path) -> None:
    # A training that learns, one that memorises few rows, and one that hardly moves.
    found = found_in(
        tmp_path,
        [CorruptLabels()],
        digits().subset(rows),
        network(inner=inner),
        optimizer=adam(rate),
        every=20,
    )
    assert found == []


def rare(kept: int, *, noise: float = 0.0) -> Data:
    """Return digits 0 and 1 and every ``kept``-th 2, with noisy inputs."""
    data = digits()
    keep = (data.y < 2) | ((data.y == 2) & (torch.arange(len(data.y)) % kept == 0))
    x = data.x + noise * torch.randn(data.x.shape, generator=torch.Generator().manual_seed(0))
    return replace(data, x=x[keep], y=data.y[keep])


@pytest.mark.thorough
def test_an_unlearned_rare_class_is_found(tmp_path: Path) -> None:
    (finding,) = found_in(
        tmp_path,
        [ClassImbalance()],
        rare(12, noise=1.0),
        network(out=3),
        optimizer=sgd(0.02),
        steps=400,
    )
    assert (finding.fault, finding.severity) == ("class_imbalance", "warning")
    assert "class 2" in finding.seen
    assert "class weights (class 2" in finding.remedy
    assert finding.value > 10
    assert finding.step >= 200


@pytest.mark.thorough
def test_a_rare_class_that_is_learned_late_is_ignored(tmp_path: Path) -> None:
    assert found_in(tmp_path, [ClassImbalance()], rare(12), network(out=3), steps=400) == []


def absent(classes: int) -> Data:
    """Return digits below 5, and all but a few of the others left out of the training."""
    data = digits()
    keep = (data.y < classes) | (torch.arange(len(data.y)) % 60 == 0)
    return replace(data, x=data.x[keep], y=data.y[keep])


@pytest.mark.thorough
def test_classes_that_only_the_training_hardly_has_are_found(tmp_path: Path) -> None:
    found = found_in(tmp_path, [ClassImbalance()], absent(5), network(), every=50)
    (finding,) = found
    assert (finding.fault, finding.severity) == ("class_imbalance", "warning")
    assert "rare in the training only" in finding.seen
    # Half of the evaluated digits, and few of the training.
    assert finding.value > 20


@pytest.mark.thorough
def test_classes_that_are_as_rare_in_evaluations_are_ignored(tmp_path: Path) -> None:
    data = absent(5)
    keep = (data.y_eval < 5) | (torch.arange(len(data.y_eval)) % 60 == 0)
    data = replace(data, x_eval=data.x_eval[keep], y_eval=data.y_eval[keep])
    assert found_in(tmp_path, [ClassImbalance()], data, network(), every=50) == []


def test_balanced_training_rows_of_rare_classes_are_ignored(tmp_path: Path) -> None:
    data = digits()
    keep = (data.y_eval == 3) | (torch.arange(len(data.y_eval)) % 20 == 0)
    data = replace(data, x_eval=data.x_eval[keep], y_eval=data.y_eval[keep])
    assert found_in(tmp_path, [ClassImbalance()], data, network(), every=50) == []


def test_balanced_classes_are_ignored(tmp_path: Path) -> None:
    untrained = sgd(1e-6)
    found = found_in(tmp_path, [ClassImbalance()], digits(), network(), optimizer=untrained)
    assert found == []


def test_a_squared_error_of_class_numbers_is_found(tmp_path: Path) -> None:
    data = relabelled(lambda y: y[:, None].float())
    (finding,) = found_in(
        tmp_path, [LossOutputMismatch()], data, network(out=1), loss=nn.MSELoss(), steps=100
    )
    assert (finding.fault, finding.severity) == ("loss_output_mismatch", "warning")
    assert "10 outputs" in finding.remedy
    assert finding.step <= 40


def test_binned_quantities_are_no_class_numbers(tmp_path: Path) -> None:
    # Progress of diabetes, in ten bins.
    data = diabetes()
    limits = data.y.flatten().quantile(torch.linspace(0.1, 0.9, 9))
    steps = torch.bucketize(data.y, limits).float()
    made = replace(data, y=steps)
    rules, model = [LossOutputMismatch()], network(10, 1)
    found = found_in(tmp_path, rules, made, model, loss=nn.MSELoss(), steps=100)
    assert found == []


def test_order_of_classes_is_a_correlation_over_pairs() -> None:
    places = np.array([0.0, 1.0, 2.0, 4.0])
    inputs = np.repeat(places, 5)[:, None]
    numbers = np.repeat(np.arange(4), 5)
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    distances = [places[b] - places[a] for a, b in pairs]
    expected = np.corrcoef(distances, [b - a for a, b in pairs])[0, 1]
    assert order_of_classes(inputs, numbers) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SingleLabel(rows=0), "rows = 0"),
        (lambda: SingleLabel(order=1.0), "order = 1"),
        (lambda: CorruptLabels(gain=0.0), "gain = 0"),
        (lambda: CorruptLabels(evaluations=0), "evaluations = 0"),
        (lambda: ClassImbalance(imbalance=1.0), "imbalance = 1"),
        (lambda: ClassImbalance(misprediction=1.0), "misprediction = 1"),
        (lambda: ClassImbalance(samples=0), "samples = 0"),
        (lambda: LossOutputMismatch(order=1.0), "order = 1"),
    ],
)
def test_invalid_parameters_raise(make: type[Rule], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
