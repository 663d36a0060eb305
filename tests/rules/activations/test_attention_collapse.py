"""Saturated and uniform attention is found where it harms, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

from tests.rules.activations.transformers import Task, digits_of, trained
from tests.rules.trainings import digits
from vinedresser.errors import ConfigError
from vinedresser.rules.activations.attention_collapse import AttentionCollapse
from vinedresser.rules.causes.root_cause import root_causes
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import RULES
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run
from vinedresser.testing.runs import make_run, step_record


def of_digits(**changes: Any) -> Task:
    data = digits()
    rows = digits_of(data.x, data.y)
    embed = lambda: nn.Linear(8, 32)  # noqa: E731
    return Task(**{"rows": rows, "embed": embed, "length": 8, "first": False, **changes})


def findings(run: Run) -> list[Finding]:
    return judge(run, [AttentionCollapse()])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "fires"),
    [
        pytest.param(
            Task(rate=0.3, steps=400), "each head of attention/blocks.0", id="learning rate"
        ),
        pytest.param(Task(scale=3000.0), "each head of attention/blocks.0", id="scores too large"),
        pytest.param(Task(scale=1e-6), "all heads of 2 attention layers", id="scores too small"),
        pytest.param(
            of_digits(rate=1.0, steps=400), "each head of attention/blocks.0", id="digits"
        ),
        # Healthy, sharp and uniform heads included, and trainings too short to learn.
        pytest.param(of_digits(rate=1e-3, steps=300), "", id="healthy"),
        pytest.param(of_digits(rate=1e-3, scale=12.0, steps=300), "", id="sharp"),
        pytest.param(of_digits(rate=1e-3, scale=1e-6, steps=300), "", id="uniform"),
        pytest.param(Task(rate=2e-4, steps=400), "", id="slow"),
    ],
)
def test_trainings(tmp_path: Path, task: Task, fires: str) -> None:
    run = trained(tmp_path / "run", task, [AttentionCollapse(every=20)])
    found = findings(run)
    assert [one.seen.startswith(fires) for one in found] == [True] * bool(fires)
    for one in found:
        assert (one.severity, one.fault) == ("warning", "attention_collapse")


@pytest.mark.thorough
def test_the_learning_rate_explains_the_collapse(tmp_path: Path) -> None:
    rules = [AttentionCollapse(every=20), RULES["learning_rate_too_high"]()]
    found = judge(trained(tmp_path / "run", of_digits(rate=1.0, steps=400), rules), rules)
    (root,) = root_causes(found)
    assert root.finding.rule == "learning_rate_too_high"
    assert "attention_collapse" in [one.rule for one in root.symptoms]


def weights(score: float, *, heads: int = 2, causal: bool = False) -> NDArray[np.float64]:
    """Return the attention of scores of this standard deviation, [2, heads, 6, 6]."""
    scores = score * np.random.default_rng(0).standard_normal((2, heads, 6, 6))
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    if causal:
        powers = np.tril(powers)
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def as_statistics(values: NDArray[np.float64], name: str) -> dict[str, NDArray[np.float64]]:
    """Return a tensor as the statistics of its heads."""
    return {
        f"{name}|channel_mean": values.mean((0, 2, 3)),
        f"{name}|channel_std": values.std((0, 2, 3)),
    }


def run_with(path: Path, *layers: NDArray[np.float64], full: bool, loss: float = 2.3) -> Run:
    """Return a run with this attention at every 20th of 600 steps, and a flat loss."""
    tensors: dict[str, NDArray[Any]] = {}
    for place, values in enumerate(layers):
        name = f"attention/{place}"
        tensors |= {name: values} if full else as_statistics(values, name)
    records = [
        step_record(
            step,
            scalars={"losses/a": loss * (1 + 0.001 * np.sin(7.0 * step))},
            tensors=tensors if step % 20 == 0 else {},
        )
        for step in range(600)
    ]
    return make_run(path / "run", records, total_steps=600)


HARD, SOFT, FLAT = 5000.0, 1.0, 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(
    ("scores", "fires"),
    [
        ((HARD, SOFT), "attention/0"),
        ((SOFT, HARD), "attention/1"),
        ((SOFT, SOFT), None),
        ((FLAT, FLAT), "attention/0"),
        ((FLAT, SOFT), None),
    ],
)
def test_layers(
    tmp_path: Path, *, full: bool, scores: tuple[float, float], fires: str | None
) -> None:
    run = run_with(tmp_path, *map(weights, scores), full=full)
    assert [one.tensor for one in findings(run)] == ([fires] if fires else [])


@pytest.mark.parametrize("full", [True, False])
def test_one_soft_head_is_enough(tmp_path: Path, *, full: bool) -> None:
    mixed = np.concatenate([weights(HARD), weights(SOFT, heads=1)], axis=1)
    assert findings(run_with(tmp_path, mixed, full=full)) == []


@pytest.mark.parametrize("full", [True, False])
def test_a_single_key_is_no_choice(tmp_path: Path, *, full: bool) -> None:
    assert findings(run_with(tmp_path, np.ones((2, 2, 3, 1)), full=full)) == []


def test_masks(tmp_path: Path) -> None:
    """Statistics do not tell uniform weights under a mask from others; the weights do."""
    flat = weights(FLAT, causal=True)
    flat[1, :, 4:] = np.nan
    (found,) = findings(run_with(tmp_path / "full", flat, full=True))
    assert found.statistic == "relative_variance"
    assert findings(run_with(tmp_path / "part", weights(FLAT, causal=True), full=False)) == []
    padded = weights(SOFT)
    padded[..., 1:] = 0.0
    padded[..., 0] = 1.0
    # All heads of a batch attend to the only key that is not padding.
    assert findings(run_with(tmp_path / "padded", padded, full=True)) == []


def test_what_is_not_captured_is_not_judged(tmp_path: Path) -> None:
    assert AttentionCollapse().all_needs == tuple(
        need for need in AttentionCollapse().all_needs if need.collection != "attention"
    )
    assert findings(make_run(tmp_path / "run", [step_record(0, scalars={"losses/a": 1.0})])) == []


def test_parameters() -> None:
    with pytest.raises(ConfigError, match="every = -1: must be at least 0 steps"):
        AttentionCollapse(every=-1)
    with pytest.raises(ConfigError, match="slope = 1: must lie between 0 and 1"):
        AttentionCollapse(slope=1.0)
