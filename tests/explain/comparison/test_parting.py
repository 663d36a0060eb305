"""The step at which runs part, bit for bit and beyond their noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from vinedresser import compare
from vinedresser.explain.comparison.parting import Parting, beyond_noise
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import make_run, step_record

STEPS = np.arange(600)


def noisy(seed: int) -> NDArray[np.float64]:
    """Return a falling loss with the noise of batches, float64 [600]."""
    draw = np.random.default_rng(seed)
    return np.exp(-STEPS / 150) + 0.1 * draw.standard_t(5, size=600)


def part_of(tmp_path: Path) -> Parting:
    return compare([tmp_path / "a", tmp_path / "b"]).partings[0][1]


def records(losses: list[float], norms: list[float]) -> list[StepRecord]:
    return [
        step_record(
            step,
            scalars={"losses/loss": loss, "timing/step": np.random.default_rng().random()},
            reductions={"gradients/w": {"l2": norm}},
        )
        for step, (loss, norm) in enumerate(zip(losses, norms, strict=True))
    ]


def test_the_last_bit_counts(tmp_path: Path) -> None:
    norms = [1.0, 2.0, float("nan"), 3.0]
    later = [*norms[:3], np.nextafter(3.0, 4.0)]
    make_run(tmp_path / "a", records([1.0] * 4, norms))
    make_run(tmp_path / "b", records([1.0] * 4, later))
    found = part_of(tmp_path)
    assert (found.exact, found.quantity, found.mode) == (3, "gradients/w l2", "train")
    assert found.values == (3.0, later[3])
    assert not found.judged


def test_equal_runs_do_not_part(tmp_path: Path) -> None:
    for name in "ab":
        make_run(tmp_path / name, records([1.0, float("nan")], [1.0, 2.0]))
    found = part_of(tmp_path)
    assert (found.exact, found.compared, found.noise) == (None, 4, None)


def test_runs_without_common_steps_are_not_called_equal(tmp_path: Path) -> None:
    make_run(tmp_path / "a", [step_record(0, scalars={"losses/loss": 1.0})])
    make_run(tmp_path / "b", [step_record(1, scalars={"losses/loss": 1.0})])
    assert part_of(tmp_path).compared == 0


def test_noise_alone_is_no_parting() -> None:
    pairs = [(noisy(2 * seed), noisy(2 * seed + 1)) for seed in range(300)]
    assert [beyond_noise(STEPS, one, two) for one, two in pairs] == [None] * 300


@pytest.mark.parametrize("start", [0, 200, 400])
def test_levels_that_part_are_found_where_they_do(start: int) -> None:
    for seed in range(20):
        other = noisy(2 * seed + 1) + np.where(start <= STEPS, 0.6, 0.0)
        assert beyond_noise(STEPS, noisy(2 * seed), other) == start


def test_one_that_breaks_parts_from_one_that_does_not() -> None:
    broken = np.where(STEPS < 300, noisy(0), np.nan)
    assert beyond_noise(STEPS, broken, noisy(1)) == 300
    assert beyond_noise(STEPS, broken, broken) is None
    huge = np.where(STEPS < 300, noisy(0), 1e308)
    assert beyond_noise(STEPS, huge, noisy(1)) == 300


def test_single_outliers_and_few_values_do_not_count() -> None:
    spiky = noisy(0)
    spiky[::11] = 1e6
    assert beyond_noise(STEPS, spiky, noisy(1)) is None
    assert beyond_noise(STEPS[:39], noisy(0)[:39], noisy(1)[:39] + 9) is None


def test_what_seeds_do_is_no_parting() -> None:
    levels = np.random.default_rng(0).normal(size=(2, 5))
    seeds = [np.array([noisy(n) + level for n, level in enumerate(row)]) for row in levels]
    one, two = seeds[0][levels[0].argmin()], seeds[1][levels[1].argmax()]
    assert beyond_noise(STEPS, one, two) == 0
    assert beyond_noise(STEPS, one, two + 9, seeds) == 0
    near = seeds[0][0], seeds[1][0]
    assert beyond_noise(STEPS, *near) is not None
    assert beyond_noise(STEPS, *near, seeds) is None


def test_runs_that_differ_by_seed_do_not_part_but_configurations_do(tmp_path: Path) -> None:
    for seed, name in enumerate("abc"):
        losses = (noisy(seed)[:80] + 0.5 * seed).tolist()
        make_run(tmp_path / name, records(losses, [1.0] * 80), parameters={"seed": seed})
    # Its configuration has one run, and so is taken to spread as the other one.
    make_run(
        tmp_path / "d",
        records((noisy(3)[:80] + 9).tolist(), [1.0] * 80),
        parameters={"seed": 0, "lr": 1},
    )
    partings = {run.name: found.noise for run, found in compare(tmp_path).partings}
    assert partings == {"b": None, "c": None, "d": 0}
