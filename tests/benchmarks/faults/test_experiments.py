"""Trials from the first step of a case prove its fault, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import faults
from benchmarks.faults.cases import load_cases
from benchmarks.faults.experiments import Experiment, experiment_with, replayed_case
from benchmarks.faults.tables import experiment_table, seeds_table
from benchmarks.faults.training import train
from benchmarks.faults.verdict import Outcome, Verdict
from vinedresser.capture.config.capture_config import CaptureConfig

FOLDER = Path(faults.__file__).parent
CASES = {
    case.id: case
    for name in ("cases", "more_cases")
    for case in load_cases(FOLDER / f"{name}.yaml")
}


@pytest.mark.thorough
def test_gradients_that_are_not_cleared_are_proved() -> None:
    found = experiment_with(CASES["digits-uncleared-F"], 0)
    assert "zero_grad" in found.cures, found.words
    assert found.right


@pytest.mark.thorough
def test_nothing_is_proved_of_a_healthy_training() -> None:
    found = experiment_with(CASES["DF-51181393-H"], 0)
    assert found.cures == ()
    assert not found.right


def test_the_table_counts_right_and_wrong_proofs() -> None:
    def verdict(number: int, fault: str, experiment: Experiment) -> Verdict:
        outcome = Outcome(as_expected=True, measured={})
        faulty = fault != "healthy"
        return Verdict(f"{number}", 0, faulty, fault, 9, outcome, (), experiment=experiment)

    right = Experiment("2", "lr_too_high", 0, "", ("lower learning rate",), right=True)
    wrong = Experiment("0", "healthy", 0, "", ("inputs",))
    none = Experiment("1", "healthy", 0, "none of 4 changes cures it")
    table = experiment_table(
        [
            verdict(0, "healthy", wrong),
            verdict(1, "healthy", none),
            # Not found by a rule: not counted.
            verdict(2, "lr_too_high", right),
        ]
    )
    healthy = next(line for line in table.splitlines() if line.startswith("healthy"))
    assert healthy.split()[1:] == [
        *("0", "of", "2,", "0%", "0", "of", "2,", "0%", "1", "of", "2,", "50%"),
        *("0", "of", "2,", "0%", "1", "of", "2,", "50%"),
    ]
    found = next(line for line in table.splitlines() if line.startswith("found by a rule"))
    assert found.split()[4:] == []


def test_proofs_are_counted_by_seed_and_a_healthy_cure_is_a_wrong_one() -> None:
    high, low = ("lower learning rate",), ("higher learning rate",)
    rows = seeds_table(
        [
            Experiment("a", "lr_too_high", 0, "", high, right=True),
            Experiment("a", "lr_too_high", 1, "", low),
            Experiment("b", "data_leakage", 1, "", low),
            Experiment("c", "healthy", 0, ""),
            Experiment("c", "healthy", 1, "", low),
            Experiment("d", "healthy", 1, ""),
        ]
    ).splitlines()[-2:]
    assert [line.split() for line in rows] == [list("01100010"), list("11011121")]


@pytest.mark.thorough
def test_trials_begin_with_the_weights_of_the_training(tmp_path: Path) -> None:
    case = CASES["iris-mlp-H"]
    run = train(case, tmp_path / "whole", CaptureConfig(), seed=3)
    replayed = replayed_case(case, 3, tmp_path)
    recorded = replayed.replay.step.models[""].parameters
    assert recorded.keys() == run.first.keys()
    assert all(torch.equal(recorded[name], run.first[name]) for name in recorded)
