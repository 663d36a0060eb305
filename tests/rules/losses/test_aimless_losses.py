"""A loss that says nothing about progress is not judged by its rise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vinedresser.rules.base import Rule
from vinedresser.rules.engine import Engine
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.loss_not_decreasing import LossNotDecreasing
from vinedresser.rules.optimisation.learning_rate_too_high import LearningRateTooHigh
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import POLICY_GRADIENT
from vinedresser.testing.runs import make_run, step_record

# A function that is known to the record.
CROSS_ENTROPY = {"function": "cross_entropy", "negated": False}


def rising(path: Path, *, acts: int, losses: dict[str, Any], inputs: tuple[str, ...] = ()) -> Run:
    """Make a run with a loss that rises with the length of the episodes.

    Args:
        path: parent directory of the run.
        acts: number of looks, every 20 steps, at which the model had acted.
        losses: the record's entries of losses.
        inputs: names of the inputs of the model, after the collection.
    """
    noise = np.random.default_rng(0).normal(size=600)
    return make_run(
        path / "run",
        [
            step_record(
                step,
                scalars={"losses/loss": 9 * (1 + step / 40) * (1 + 0.2 * noise[step])}
                | ({"state/acts": 1.0} if step % 20 == 0 and step < 20 * acts else {}),
                tensors={f"model_inputs/{one}": np.ones((4, 1)) for one in inputs if step % 5 == 0},
            )
            for step in range(600)
        ],
        losses=losses,
    )


def rules() -> list[Rule]:
    return [LearningRateTooHigh(), LossNotDecreasing()]


@pytest.mark.parametrize(("labels", "silent"), [([0] * 32, True), ([0] * 31 + [1], False)])
def test_a_loss_of_candidates_may_rise_while_a_queue_is_filled(
    labels: list[int], *, silent: bool, tmp_path: Path
) -> None:
    """The right candidate is always the first; those that the model made replace random ones."""
    noise = np.random.default_rng(0).normal(size=300)
    values = [2.6 + 4 * min(step / 60, 1) + 0.05 * noise[step] for step in range(300)]
    records = [
        step_record(
            step,
            scalars={"losses/loss": value},
            tensors={"labels/loss": np.array(labels)} if step % 5 == 0 else {},
        )
        for step, value in enumerate(values)
    ]
    assert (judge(make_run(tmp_path / "run", records), rules()) == []) is silent


def test_a_loss_that_swings_about_zero_is_not_judged(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(size=800)
    # The difference of two energies grows with them.
    values = noise * (1 + np.arange(800) / 100)
    records = [step_record(step, scalars={"losses/loss": values[step]}) for step in range(800)]
    assert judge(make_run(tmp_path / "run", records), rules()) == []


def test_a_loss_that_falls_through_zero_and_rises_again_is_judged(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(size=800)
    falls = np.maximum(3 - np.arange(800) / 20, -2.0)
    values = np.where(np.arange(800) < 200, falls, 40.0) + 0.3 * noise
    records = [step_record(step, scalars={"losses/loss": values[step]}) for step in range(800)]
    assert judge(make_run(tmp_path / "run", records), rules())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("acts", "losses", "judged"),
    [
        (0, {}, True),
        # Such as a call for a picture now and then.
        (4, {}, True),
        (30, {}, False),
        (30, {"loss": CROSS_ENTROPY}, True),
        # Errors of values that an agent learns from its own estimates.
        (30, {"loss": {"function": "mse_loss"}}, False),
        (30, {"loss": {"type": "SmoothL1Loss", "settings": {}}}, False),
        (0, {"loss": {"function": "mse_loss"}}, True),
        (0, {"loss": {"function": POLICY_GRADIENT}}, False),
        # A sum that the script saves, with a policy gradient in it.
        (0, {"policy": {"function": POLICY_GRADIENT}}, False),
        (0, {"policy": {"function": POLICY_GRADIENT}, "loss": CROSS_ENTROPY}, True),
    ],
)
def test_the_loss_of_an_agent_may_rise(
    acts: int, losses: dict[str, Any], *, judged: bool, tmp_path: Path
) -> None:
    run = rising(tmp_path, acts=acts, losses=losses)
    found = {one.rule for one in judge(run, rules())}
    assert found == ({"learning_rate_too_high", "loss_not_decreasing"} if judged else set())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("inputs", "judged"),
    [
        (("SACLoss[action]", "SACLoss[next][reward]", "SACLoss[observation]"), False),
        (("Agent.actions", "Agent.rewards"), False),
        (("Model[interaction]", "Model[reward]"), True),
        (("Model[action]", "Model[label]"), True),
    ],
)
def test_the_loss_of_a_model_of_transitions_may_rise(
    inputs: tuple[str, ...], *, judged: bool, tmp_path: Path
) -> None:
    run = rising(tmp_path, acts=0, losses={}, inputs=inputs)
    assert bool(judge(run, rules())) is judged


@pytest.mark.parametrize("known", [False, True])
def test_a_policy_gradient_that_is_known_after_a_few_updates(
    *, known: bool, tmp_path: Path
) -> None:
    run = rising(tmp_path, acts=0, losses={})
    engine, found = Engine(rules()), []
    engine.begin(run.info)
    for step in run.follow():
        if known and step.step == 8:
            engine.on_record(replace(run.info, losses={"loss": {"function": POLICY_GRADIENT}}))
        found += engine.update(step)
    assert (found == []) == known
