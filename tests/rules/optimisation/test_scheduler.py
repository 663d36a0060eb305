"""Schedules that are not stepped or run ahead are found; correct ones are ignored."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer, lr_scheduler

from tests.rules.inside_trainings import found, stack
from tests.rules.trainings import batches, digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.capture.torch_.optimizers.schedulers import NotedSchedulers, Schedulers
from vinedresser.errors import ConfigError
from vinedresser.rules.base import capture_for
from vinedresser.rules.optimisation.scheduler_not_stepped import SchedulerNotStepped
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.testing.runs import make_run, step_record

Make = Callable[[Optimizer], Any]


def trained(
    path: Path,
    make: Make,
    *,
    every: int = 0,
    steps: int = 300,
    total: int | None = 300,
    lr: float = 0.1,
    epochs: bool = False,
) -> Run:
    """Train on digits; step the scheduler at an interval, or never if it is 0.

    With ``epochs``, evaluate after every 29 steps.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data, loss = digits(), nn.CrossEntropyLoss()
    model = stack((64, 32, 10), nn.ReLU)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    scheduler = make(optimizer)
    collections = capture_for([SchedulerNotStepped()]).collections
    with Hook(path, collections=collections, total_steps=total) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        rows = batches(len(data.x), 64)
        for step in range(1, steps + 1):
            chosen = next(rows)
            optimizer.zero_grad()
            loss(model(data.x[chosen]), data.y[chosen]).backward()
            optimizer.step()
            if every and step % every == 0:
                scheduler.step()
            if epochs and step % 29 == 0:
                model.eval()
                with torch.no_grad():
                    loss(model(data.x[:64]), data.y[:64])
                model.train()
    return open_run(path)


@pytest.mark.thorough
@pytest.mark.parametrize(("total", "step"), [(300, 160), (None, 280)])
def test_an_unstepped_scheduler_is_found(total: int | None, step: int, tmp_path: Path) -> None:
    made = lambda o: lr_scheduler.StepLR(o, 1)  # noqa: E731
    run = trained(tmp_path / "run", made, total=total, epochs=True)
    (finding,) = found(run, SchedulerNotStepped())
    assert (finding.severity, finding.fault) == ("warning", "scheduler_not_stepped")
    assert finding.step == step
    assert "the learning rate is constant at 0.1" in finding.seen
    assert "scheduler.step()" in finding.remedy


@pytest.mark.thorough
@pytest.mark.parametrize("total", [60, None])
def test_in_what_may_be_a_single_epoch_it_is_an_info(total: int | None, tmp_path: Path) -> None:
    # Stepped after the epoch, when no further step shows it.
    run = trained(
        tmp_path / "run", lambda o: lr_scheduler.StepLR(o, 1), every=60, steps=60, total=total
    )
    assert {one.severity for one in found(run, SchedulerNotStepped())} <= {"info"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("make", "every"),
    [
        # Stepped each epoch, but not yet at its first change.
        (lambda o: lr_scheduler.StepLR(o, 100), 23),
        # A composite schedule, which has no step count of its own.
        (
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.ConstantLR(o, 1.0), lr_scheduler.StepLR(o, 50)], [200]
            ),
            1,
        ),
        # Waits for a metric.
        (lr_scheduler.ReduceLROnPlateau, 0),
        # None at all.
        (lambda o: None, 0),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 300), 1),
    ],
)
def test_correct_schedulers_are_ignored(make: Make, every: int, tmp_path: Path) -> None:
    assert found(trained(tmp_path / "run", make, every=every), SchedulerNotStepped()) == []


@pytest.mark.thorough
@pytest.mark.parametrize(("steps", "total"), [(800, 800), (800, None), (300, 300), (300, None)])
def test_an_epoch_schedule_stepped_per_batch_is_found(
    steps: int, total: int | None, tmp_path: Path
) -> None:
    decaying = lambda o: lr_scheduler.ExponentialLR(o, 0.8)  # noqa: E731
    run = trained(tmp_path / "run", decaying, every=1, steps=steps, total=total, lr=0.01)
    (finding,) = found(run, SchedulerNotStepped())
    assert finding.fault == "learning_rate_too_low"
    # 0.8 ** 31 is the first value below a thousandth; checked every 20 steps.
    assert finding.evidence["since"] == 40
    assert "once per epoch" in finding.remedy


@pytest.mark.thorough
def test_the_same_schedule_stepped_per_epoch_is_ignored(tmp_path: Path) -> None:
    decaying = lambda o: lr_scheduler.ExponentialLR(o, 0.8)  # noqa: E731
    run = trained(tmp_path / "run", decaying, every=23, steps=800, total=800, lr=0.1)
    assert found(run, SchedulerNotStepped()) == []


def test_a_decayed_rate_in_a_good_training_is_ignored(tmp_path: Path) -> None:
    """A short warm restart: the loss has decreased, so the schedule does not matter."""
    made = []
    for step in range(1000):
        rates = {"optimizer_state/lr": 1e-6 if step > 50 else 0.1}
        scalars = {"losses/a": 1 / (1 + step / 20), **(rates if step % 20 == 0 else {})}
        made.append(step_record(step, scalars=scalars))
    assert found(make_run(tmp_path / "run", made, total_steps=1000), SchedulerNotStepped()) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("total", "gamma", "at"),
    [(1000, 0.8, 80), (None, 0.8, 160), (1000, 0.96, 600), (1000, 0.97, None)],
)
def test_a_rate_that_is_rounded_away_early_is_found_in_a_good_training(
    total: int | None, gamma: float, at: int | None, tmp_path: Path
) -> None:
    """Stepped per batch; 0.97 ** 546 is 2 ** -24, which is after half of the run."""
    made = []
    for step in range(1000):
        looked = step % (20 if step < 400 else 100) == 0
        rates = {"optimizer_state/lr": 0.1 * gamma**step} if looked else {}
        made.append(step_record(step, scalars={"losses/a": 1 / (1 + step / 20), **rates}))
    findings = found(make_run(tmp_path / "run", made, total_steps=total), SchedulerNotStepped())
    assert [finding.step for finding in findings] == ([] if at is None else [at])
    assert {finding.fault for finding in findings} <= {"learning_rate_too_low"}


@pytest.mark.thorough
@pytest.mark.parametrize("total", [600, None])
def test_a_rate_of_zero_for_a_third_of_a_run_is_found_once_in_a_good_training(
    total: int | None, tmp_path: Path
) -> None:
    ending = lambda o: lr_scheduler.LambdaLR(o, lambda step: max(0.0, 1 - step / 200))  # noqa: E731
    run = trained(tmp_path / "run", ending, every=1, steps=600, total=total)
    (finding,) = found(run, SchedulerNotStepped())
    assert (finding.severity, finding.fault) == ("warning", "learning_rate_too_low")
    assert finding.evidence["since"] == 200
    assert "steps no longer change the weights" in finding.seen


@pytest.mark.thorough
def test_a_rate_of_zero_from_the_start_is_found_at_once(tmp_path: Path) -> None:
    # A schedule over epochs that counts batches.
    ending = lambda o: lr_scheduler.LambdaLR(o, lambda step: max(0.0, 1 - step / 10))  # noqa: E731
    run = trained(tmp_path / "run", ending, every=1, steps=60, total=500)
    (finding,) = found(run, SchedulerNotStepped())
    assert (finding.severity, finding.fault) == ("warning", "learning_rate_too_low")
    assert (finding.step, finding.evidence["since"]) == (20, 10)


@pytest.mark.thorough
def test_a_cyclic_rate_that_touches_zero_is_ignored(tmp_path: Path) -> None:
    cyclic = lambda o: lr_scheduler.CyclicLR(o, 0.0, 0.1, 20)  # noqa: E731
    run = trained(tmp_path / "run", cyclic, every=1, steps=200, total=1000)
    assert found(run, SchedulerNotStepped()) == []


@pytest.mark.thorough
def test_a_rate_of_zero_at_the_end_of_a_run_is_ignored(tmp_path: Path) -> None:
    ending = lambda o: lr_scheduler.LambdaLR(o, lambda step: max(0.0, 1 - step / 200))  # noqa: E731
    run = trained(tmp_path / "run", ending, every=1, steps=290, total=290)
    assert found(run, SchedulerNotStepped()) == []


@pytest.mark.thorough
def test_step_count_equals_that_of_torch(tmp_path: Path) -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    assert Schedulers().steps(optimizer) is None
    scheduler = lr_scheduler.StepLR(optimizer, 10)
    schedulers = Schedulers()
    counted = [schedulers.steps(optimizer)]
    optimizer.step()
    for _ in range(3):
        scheduler.step()
        counted.append(schedulers.steps(optimizer))
    assert counted == [0, 1, 2, 3]
    # We keep none alive.
    del scheduler
    assert schedulers.steps(optimizer) is None


@pytest.mark.slow
def test_noted_schedulers_are_those_that_a_search_finds() -> None:
    noted = NotedSchedulers()
    noted.start()
    optimizers = [torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1) for _ in range(2)]
    parts = [lr_scheduler.ConstantLR(optimizers[0]), lr_scheduler.ExponentialLR(optimizers[0], 0.9)]
    whole = lr_scheduler.SequentialLR(optimizers[0], parts, [2])
    other = lr_scheduler.CosineAnnealingLR(optimizers[1], 5)
    for _ in range(4):
        counts = [Schedulers(known).steps(optimizers[0]) for known in (noted, NotedSchedulers())]
        assert counts[0] == counts[1]
        assert noted.of(optimizers[0]) == parts
        for optimizer in optimizers:
            optimizer.step()
        whole.step()
    assert noted.of(optimizers[1]) == [other]
    # Copies are not noted, but found.
    copied, _scheduler = copy.deepcopy((optimizers[1], other))
    assert noted.of(copied) == []
    assert Schedulers(noted).steps(copied) == 0


@pytest.mark.thorough
def test_step_count_is_captured_with_the_learning_rate(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    with Hook(tmp_path / "run", collections={"optimizer_state": SaveConfig(every=1)}) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            scheduler.step()
    scalars = open_run(tmp_path / "run").scalars("optimizer_state")
    assert list(scalars["optimizer_state/scheduler_steps"].values) == [0, 1, 2, 3]
    assert list(scalars["optimizer_state/lr"].values) == [0.1, 0.05, 0.025, 0.0125]


@pytest.mark.parametrize(
    ("schedulers", "rates", "fires"),
    [
        pytest.param([1, 2, 3, 4, 5, 6], [0.1] * 6, True, id="anew without effect"),
        pytest.param([1, 2, 3, 4, 5, 6], [0.1, 0.1, 0.05, 0.1, 0.05, 0.1], False, id="restarts"),
        pytest.param([3, 3, 3, 3, 3, 3], [0.1] * 6, False, id="one of three"),
        pytest.param([1, 2, 2, 2, 3, 3], [0.1] * 6, False, id="two phases"),
    ],
)
def test_schedulers_that_are_made_anew_without_effect_are_found(
    schedulers: list[int], rates: list[float], fires: bool, tmp_path: Path
) -> None:
    records = []
    for place, (number, rate) in enumerate(zip(schedulers, rates, strict=True)):
        scalars = {
            "losses/a": 1 / (1 + place),
            "optimizer_state/lr": rate,
            "optimizer_state/scheduler_steps": 1.0,
            "optimizer_state/scheduler_count": float(number),
        }
        records.append(step_record(20 * place, scalars=scalars))
    findings = found(make_run(tmp_path, records), SchedulerNotStepped())
    assert [finding.statistic for finding in findings] == ["schedulers"] * fires


def test_all_schedulers_of_an_optimizer_are_counted() -> None:
    noted = NotedSchedulers()
    noted.start()
    schedulers = Schedulers(noted)
    one, other = (torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1) for _ in range(2))
    assert schedulers.count(one) is None
    for number in range(1, 4):
        scheduler = lr_scheduler.StepLR(one, 2)
        one.step()
        for _ in range(number):
            scheduler.step()
        # Those that are gone count, too, but only the present one has steps.
        assert (schedulers.count(one), schedulers.steps(one)) == (number, number)
    assert schedulers.count(other) is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize(("decay_steps", "fires"), [(1, True), (60, False)])
def test_schedules_in_keras(decay_steps: int, fires: bool, tmp_path: Path) -> None:
    import keras

    keras.utils.set_random_seed(0)
    rate = keras.optimizers.schedules.ExponentialDecay(0.01, decay_steps, 0.8)
    layers = [keras.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(rate), loss)
    data = digits()
    collections = capture_for([SchedulerNotStepped()]).collections
    with Hook(tmp_path / "run", collections=collections, total_steps=460) as hook:
        hook.watch(model)
        model.fit(data.x.numpy(), data.y.numpy(), batch_size=64, epochs=20, verbose=0)
    findings = found(open_run(tmp_path / "run"), SchedulerNotStepped())
    assert [finding.fault for finding in findings] == ["learning_rate_too_low"] * fires


@pytest.mark.parametrize("settings", [{"decay": 1.0}, {"share": 0.0}, {"patience": 0}])
def test_invalid_parameters_raise(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        SchedulerNotStepped(**settings)
