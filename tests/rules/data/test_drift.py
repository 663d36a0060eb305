"""The rule `drift`: other inputs, and worse evaluations since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.rules.data.trainings import found_in, network
from tests.rules.trainings import Data, batches, diabetes, digits
from vinedresser.errors import ConfigError
from vinedresser.rules.data.drift import Drift
from vinedresser.rules.data.input_history import InputHistory, Sample, shift
from vinedresser.rules.data.lasting_harm import LastingHarm
from vinedresser.store.finding import Finding

CHANGE = 200
Prepare = Callable[[int, Tensor], Tensor]


def trained(
    path: Path,
    prepare: Prepare = lambda step, x: x,
    *,
    data: Data | None = None,
    every: int = 20,
    steps: int = 400,
    order: Iterator[Tensor] | None = None,
    evaluations: Callable[[int], Data] | None = None,
) -> list[Finding]:
    """Return the findings of `drift` in a training on digits whose inputs depend on the step."""
    step = -1

    def prepared(x: Tensor) -> Tensor:
        nonlocal step
        step += 1
        return prepare(step, x)

    data = data or digits()
    return found_in(
        path,
        [Drift()],
        data,
        network(),
        steps=steps,
        every=every,
        order=order,
        evaluations=evaluations,
        prepare=prepared,
    )


def later(change: Callable[[Tensor], Tensor]) -> Prepare:
    """Return inputs that change at a step."""
    return lambda step, x: change(x) if step >= CHANGE else x


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "statistic"),
    [
        (lambda x: 1 - x, "mean"),
        (lambda x: x.flip(1), "mean"),
        (lambda x: x + 3 * torch.randn_like(x), "std"),
    ],
    ids=["inverted", "mirrored", "noise"],
)
def test_inputs_that_change_and_do_harm_are_reported(
    change: Callable[[Tensor], Tensor], statistic: str, tmp_path: Path
) -> None:
    (finding,) = trained(tmp_path, later(change))
    assert (finding.rule, finding.fault, finding.severity) == ("drift", "drift", "warning")
    assert finding.statistic == statistic
    # The first look after the change.
    assert finding.since == CHANGE
    assert finding.step <= CHANGE + 100
    assert finding.evidence["evaluation"]["last"] == CHANGE
    assert f"since step {finding.since}" in finding.seen


@pytest.mark.thorough
@pytest.mark.parametrize(
    "prepare",
    [
        lambda step, x: x,
        lambda step, x: x * (1 + 0.5 * min(step, 300) / 300),
        lambda step, x: x + max(0.0, 0.5 - step / 500) * torch.randn_like(x),
        lambda step, x: x + 0.5 * torch.randn_like(x) if step < CHANGE else x,
        lambda step, x: x * 16 if step >= CHANGE else x,
        lambda step, x: 1 - x if CHANGE <= step < CHANGE + 25 else x,
    ],
    ids=["same", "slowly brighter", "less noise", "no augmentation", "harmless", "for a moment"],
)
def test_other_inputs_without_lasting_harm_are_left_alone(prepare: Prepare, tmp_path: Path) -> None:
    assert trained(tmp_path, prepare) == []


@pytest.mark.thorough
def test_a_curriculum_is_left_alone(tmp_path: Path) -> None:
    """Faint digits first, then all: the inputs change, and the evaluations improve."""
    data = digits()
    by_ink = data.x.sum(1).argsort()

    def order() -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(0)
        for step in range(400):
            known = by_ink[: len(by_ink) // 4] if step < CHANGE else by_ink
            yield known[torch.randint(len(known), (32,), generator=generator)]

    assert trained(tmp_path, order=order()) == []


def test_harm_without_other_inputs_is_left_alone(tmp_path: Path) -> None:
    """Labels are shuffled from a step on."""
    data = digits()
    wrong = data.y.clone()
    rows = batches(len(data.x), 32)
    generator = torch.Generator().manual_seed(0)

    def order() -> Iterator[Tensor]:
        for step in range(400):
            if step == CHANGE:
                data.y.copy_(wrong[torch.randperm(len(wrong), generator=generator)])
            yield next(rows)

    assert trained(tmp_path, data=data, order=order()) == []


def test_other_evaluations_are_left_alone(tmp_path: Path) -> None:
    """The evaluation rows change, not those of the training."""
    data = digits()
    other = Data(data.x, data.y, 1 - data.x_eval, data.y_eval)
    assert trained(tmp_path, evaluations=lambda number: other if number > 10 else data) == []


def test_without_evaluations_nothing_is_said(tmp_path: Path) -> None:
    assert trained(tmp_path, later(lambda x: 1 - x), every=0) == []


def test_a_regression_with_one_changed_feature_names_it(tmp_path: Path) -> None:
    data = diabetes()
    data = Data(data.x, data.y / 100, data.x_eval, data.y_eval / 100)
    step = -1

    def prepare(x: Tensor) -> Tensor:
        nonlocal step
        step += 1
        x = x.clone()
        x[:, 2] += 6 * (step >= CHANGE)
        return x

    (finding,) = found_in(
        tmp_path,
        [Drift()],
        data,
        network(10, 1),
        loss=nn.MSELoss(),
        steps=400,
        every=20,
        prepare=prepare,
    )
    assert finding.evidence["channel"] == 2
    assert finding.evidence["after"] - finding.evidence["before"] == pytest.approx(6, abs=0.5)


def samples(random: np.random.Generator, count: int, change: float, channels: int) -> list[Sample]:
    """Return samples at batches of 32 normal rows."""
    rows = random.normal(change, 1, (count, 32, channels))
    history = InputHistory()
    for step, batch in enumerate(rows):
        history.add(step, batch.mean(0), batch.std(0))
    return history.between(0, count)


@pytest.mark.parametrize("channels", [1, 1000])
def test_samples_at_the_same_rows_do_not_differ(channels: int) -> None:
    random = np.random.default_rng(0)
    for _ in range(30):
        before, after = samples(random, 20, 0, channels), samples(random, 4, 0, channels)
        assert shift(before, after, distance=0.01, factor=1.01) is None


def test_the_distance_is_in_standard_deviations() -> None:
    random = np.random.default_rng(0)
    found = shift(samples(random, 20, 0, 3), samples(random, 20, 2, 3), distance=0.5, factor=1.5)
    assert found is not None
    assert (found.statistic, found.channels) == ("mean", 1.0)
    assert found.distance == pytest.approx(2, rel=0.1)


def test_constant_inputs_that_become_others_have_changed() -> None:
    def constant(value: float) -> list[Sample]:
        history = InputHistory()
        for step in range(5):
            history.add(step, np.full(3, value), np.zeros(3))
        return history.between(0, 5)

    found = shift(constant(0.0), constant(1.0), distance=0.5, factor=1.5)
    assert found is not None
    assert found.distance == np.inf
    assert shift(constant(1.0), constant(1.0), distance=0.5, factor=1.5) is None


def test_memory_is_bounded_for_wide_inputs() -> None:
    history = InputHistory()
    for step in range(2000):
        history.add(step, np.zeros(5000), np.ones(5000))
    assert len(history.between(0, 2000)) < 100


def values(losses: list[float], metrics: list[float] | None = None) -> LastingHarm:
    """Return the evaluations of some losses and accuracies."""
    harm = LastingHarm(0.2, 3)
    for step, loss in enumerate(losses):
        harm.add(step, {"losses/x": loss}, {"metrics/accuracy": metrics[step]} if metrics else {})
    return harm


FALLING = [2.3, 1.5, 1.0, 0.8, 0.7, 0.65, 0.62, 0.6]


@pytest.mark.parametrize(
    "after",
    [[0.62, 0.64, 0.66, 0.68, 0.7], [3.0, 3.0], [3.0, 3.0, 0.6, 3.0], [3.0, 2.0, 0.7]],
    ids=["slowly", "not long enough", "with a break", "recovered"],
)
def test_evaluations_that_become_worse_otherwise_are_no_lasting_harm(after: list[float]) -> None:
    assert values(FALLING + after).harm() is None


def test_lasting_harm_names_the_evaluations_around_its_begin() -> None:
    found = values([*FALLING, 3.0, 2.5, 2.8]).harm()
    assert found is not None
    assert (found.last, found.first, found.before, found.after) == (7, 8, 0.6, 2.8)


def test_a_better_metric_outweighs_a_loss() -> None:
    losses = [*FALLING, 3.0, 2.5, 2.8]
    rising = [0.5 + 0.04 * step for step in range(len(losses))]
    assert values(losses, rising).harm() is None
    assert values(losses, [0.5] * len(losses)).harm() is not None


@pytest.mark.parametrize(
    "arguments", [{"distance": 0.0}, {"factor": 1.0}, {"share": 1.0}, {"patience": 1}]
)
def test_invalid_parameters_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(arguments))):
        Drift(**arguments)  # type: ignore[arg-type]
