"""Trainings of the world: repeatable, verified by their outcome, and judged."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.world.__main__ import main
from benchmarks.world.cases import Case
from benchmarks.world.stored import StoredCase, note_case, stored_cases
from benchmarks.world.training import trained
from benchmarks.world.verification import outcomes
from corpus.family import Ending
from corpus.watching import Watch

TREES = Case("boosted_digits", "target_leak", 0, 0, faulty=False)
XOR = Case("plateaus", "lr_too_high", 0, 0, faulty=False)


def test_harm_is_measured_against_the_healthy_twin() -> None:
    healthy = Ending(0.9, bar=0.8)
    assert healthy.good
    assert Ending(0.6, bar=0.8).harmed(healthy)
    assert Ending(math.nan, bar=0.8).harmed(healthy)
    assert Ending(math.nan, math.nan, crash="ValueError").harmed(healthy)
    assert Ending(0.9, bar=0.8, overstated=0.5).harmed(healthy)
    assert not Ending(0.8, bar=0.8).harmed(healthy)
    assert not Ending(0.1, bar=0.8).harmed(Ending(0.7, bar=0.8)), "the healthy one failed, too"


def test_an_ending_is_read_back_as_it_was_noted(tmp_path: Path) -> None:
    (tmp_path / XOR.id).mkdir()
    ending = Ending(math.inf, bar=0.8, crash="ValueError: no")
    note_case(StoredCase(XOR, tmp_path / XOR.id, ending, hooked=True, seconds=1.0))
    (read,) = stored_cases(tmp_path)
    assert (read.case, read.hooked, read.ending.crash) == (XOR, True, ending.crash)
    assert math.isnan(read.ending.score)


@pytest.mark.thorough
def test_a_training_is_the_same_for_the_same_seed() -> None:
    once, again = (trained(XOR, Watch()) for _ in range(2))
    assert once == again
    assert once.good


@pytest.mark.slow
def test_a_pair_is_trained_verified_and_judged_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = tmp_path / "runs"
    main(["--draws", "1", "--only", "tabular_classification/wrong_sign", "--keep", str(keep)])
    first = capsys.readouterr().out
    healthy, faulty = sorted(stored_cases(keep), key=lambda case: case.case.faulty)
    assert healthy.ending.good
    assert faulty.ending.harmed(healthy.ending)
    for one in (healthy, faulty):
        assert one.runs
        # Capture changes nothing.
        assert trained(one.case, Watch()) == one.ending
    assert "wrong_sign" in first
    main(["--judge", str(keep)])
    assert capsys.readouterr().out == first
    main(["--judge", str(keep), "--outcomes"])
    *_, last = capsys.readouterr().out.splitlines()
    assert last.lstrip().startswith("100%  1 of 1, 100%    0 of 1, 0%  0 of 1, 0% wrong"), last


def test_a_recipe_ends_well_and_its_fault_does_harm() -> None:
    pytest.importorskip("xgboost")
    healthy, faulty = (trained(one, Watch()) for one in (TREES, TREES.twin))
    assert healthy.good
    assert faulty.harmed(healthy)
    assert faulty.overstated > faulty.margin, "the evaluation has the label, too"


@pytest.mark.slow
def test_recipes_are_trained_and_judged(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--recipes", "--only", "hinton_distillation/term_wrong_sign", "boosted_digits"])
    printed = capsys.readouterr().out
    assert "not counted" not in printed
    rows = {line.split()[0]: line.split() for line in printed.splitlines() if line.split()}
    assert rows["hinton_distillation"][1] == "1"
    assert rows["boosted_digits"][1] == "3"


@pytest.mark.slow
def test_verifying_a_sealed_pair_judges_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = tmp_path / "runs"
    chosen = ["--sealed", "--only", "coupons/wrong_sign"]
    main([*chosen, "--draws", "1", "--verify", "--keep", str(keep)])
    printed = capsys.readouterr().out.splitlines()
    healthy, faulty = sorted(stored_cases(keep), key=lambda case: case.case.faulty)
    assert healthy.ending.good
    assert faulty.ending.harmed(healthy.ending)
    assert all(one.runs for one in (healthy, faulty))
    rows = {line.split()[0]: line.split()[1:5] for line in printed if line.split()}
    assert rows["coupons"] == rows["all"] == ["1", "1", "1", "1"]
    assert not list(keep.rglob("findings*")), "nothing was judged"


def test_a_faulty_training_is_verified_beside_its_twin_only() -> None:
    twins = [
        StoredCase(one, Path(), Ending(score, bar=0.8), hooked=False, seconds=1.0)
        for one, score in ((XOR, 0.9), (XOR.twin, 0.2))
    ]
    assert [outcome.as_expected for outcome in outcomes(twins)] == [True, True]
    assert not outcomes(twins[1:])[0].as_expected
    failed = [replace(twins[0], ending=Ending(0.7, bar=0.8)), twins[1]]
    assert not any(outcome.as_expected for outcome in outcomes(failed))
