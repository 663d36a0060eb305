"""Layer maps: equal to a slow reduction of what was stored."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from vinedresser.explain.charts.layer_map import gradient_columns, layer_map
from vinedresser.store.step_record import Mode, StepRecord
from vinedresser.testing.runs import make_run, step_record

STEPS = 1_700


def sizes(step: int) -> dict[str, float]:
    """Return the norms captured at a step: of one layer always, of others at some steps."""
    random = np.random.default_rng(step)
    found = {"usual": float(random.lognormal())}
    if step % 3 == 0:
        found["rare"] = float(random.choice([0.0, 1e-30, 2.0, math.nan, math.inf, -3.0]))
    if step < 400 or step > 1_200:
        found["gap"] = float(random.choice([0.0, 0.0, 5.0]))
    if step >= 800:
        found["late"] = 0.0
    return found


def cell(values: list[float]) -> float:
    """Return the value of a cell with these sizes."""
    if not values or not all(math.isfinite(value) for value in values):
        return math.nan
    logs = [math.log10(abs(value)) for value in values if value]
    return sum(logs) / len(logs) if logs else -math.inf


def record(step: int) -> StepRecord:
    norms = {f"gradients/{name}": {"l2": size} for name, size in sizes(step).items()}
    return step_record(step, reductions=norms)


def test_each_cell_is_the_geometric_mean_of_its_captured_steps(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [record(step) for step in range(STEPS)])
    found = gradient_columns(run)
    assert found is not None
    data = layer_map(found[1])
    # 1,700 captured steps, at most 240 columns: 8 steps each.
    assert data.starts.tolist() == list(range(0, STEPS, 8))
    assert (data.steps, data.last) == (STEPS, STEPS - 1)
    stored = [sizes(step) for step in range(STEPS)]
    for name, logs, captured in zip(data.names, data.log10, data.captured, strict=True):
        columns = [
            [one[name] for one in stored[start : start + 8] if name in one]
            for start in data.starts.tolist()
        ]
        assert captured.tolist() == [bool(values) for values in columns]
        assert np.allclose(logs, [cell(values) for values in columns], equal_nan=True), name


def test_layers_captured_together_share_their_steps(tmp_path: Path) -> None:
    norms = {f"gradients/w{layer}": {"l2": 1.0 + layer} for layer in range(3)}
    modes: tuple[Mode, ...] = ("train", "eval", "train")
    run = make_run(
        tmp_path / "run", [step_record(s, mode=m, reductions=norms) for s, m in enumerate(modes)]
    )
    first, *others = run.reductions("l2", mode="train").values()
    assert first.steps.tolist() == [0, 2]
    assert first.values.tolist() == [1.0, 1.0]
    for other in others:
        # Not only equal: 200 copies of the steps would be as large as the values.
        assert other.steps is first.steps
        assert not np.shares_memory(other.values, first.values)
    assert not first.steps.flags.writeable
