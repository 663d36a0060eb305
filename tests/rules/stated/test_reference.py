"""The rule `reference` on real trainings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.capture.torch_.parallel.ranks import run_ranks
from tests.rules.stated.points import train
from vinedresser.errors import ConfigError
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import rules_from_table
from vinedresser.rules.stated.good_runs import GoodRuns
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("reference")
    return [train(folder / f"good-{seed}", seed=seed) for seed in (1, 2, 3)]


def kept(runs: list[Path]) -> dict[str, Any]:
    """Return what is kept of good runs, as it is written and read."""
    table = GoodRuns.of({run.name: open_run(run) for run in runs}).to_json()
    read: dict[str, Any] = json.loads(json.dumps(table))
    return read


def found(run: Path, good: list[Path]) -> Finding:
    (one,) = judge(open_run(run), rules_from_table({"reference": {"good": kept(good)}}))
    return one


@pytest.mark.parametrize("seed", [4, 5, 6])
def test_another_seed_is_as_the_good_runs(good: list[Path], tmp_path: Path, seed: int) -> None:
    one = found(train(tmp_path / "run", seed=seed), good)
    assert (one.severity, one.tensor, one.fault) == ("info", "", "")
    assert one.evidence["runs"] == ["good-1", "good-2", "good-3"]
    assert one.evidence["differs"] == {}


def test_shuffled_labels_are_worse_and_found_early(good: list[Path], tmp_path: Path) -> None:
    one = found(train(tmp_path / "run", seed=4, shuffled=True), good)
    assert (one.severity, one.tensor, one.fault) == ("warning", "train/loss", "unlike_good_runs")
    assert one.value > one.threshold
    assert one.since <= one.step <= 100


def test_a_result_that_is_too_good_is_found(good: list[Path], tmp_path: Path) -> None:
    one = found(train(tmp_path / "run", seed=4, easy=True), good)
    assert (one.severity, one.tensor) == ("warning", "train/loss")
    assert one.value < one.threshold


def test_the_settings_that_differ_are_named(good: list[Path], tmp_path: Path) -> None:
    one = found(train(tmp_path / "run", seed=4, rate=1e-3), good)
    assert one.severity == "warning"
    assert one.evidence["differs"] == {"rate": [0.5, 1e-3]}
    assert "differs in: rate" in one.seen


def test_a_single_good_run_has_no_spread(good: list[Path], tmp_path: Path) -> None:
    one = found(train(tmp_path / "run", seed=4, shuffled=True), good[:1])
    assert (one.severity, one.tensor) == ("info", "train/loss")
    assert one.step == 300


def test_what_is_kept_is_checked() -> None:
    for table in ({}, {"runs": ["a"], "settings": {}, "levels": {"train/loss": {"0": [1, 2]}}}):
        with pytest.raises(ConfigError, match="good"):
            rules_from_table({"reference": {"good": table}})


def test_arguments_of_good_runs_without_parameters_are_not_compared(
    good: list[Path], tmp_path: Path
) -> None:
    table = kept(good)
    table["settings"] |= {"arguments": "points.py --fast"}
    run = train(tmp_path / "run", seed=4)
    (one,) = judge(open_run(run), rules_from_table({"reference": {"good": table}}))
    assert (one.severity, one.evidence["differs"]) == ("info", {})


@pytest.mark.thorough
def test_more_ranks_with_the_same_rate_are_told(tmp_path: Path) -> None:
    names = ("more_ranks", "healthy_more_ranks")
    for world in (2, 4):
        folder = tmp_path / str(world)
        folder.mkdir()
        run_ranks("tests.capture.torch_.parallel.rank_faults", folder, *names, world=world)
    same, scaled = (found(tmp_path / "4" / name, [tmp_path / "2" / name]) for name in names)
    said = "; a step has 4 x 8 rows, theirs 2 x 8, with the same initial learning rate 0.1"
    assert said in same.seen
    assert same.evidence["differs"]["ranks"] == [2, 4]
    assert same.severity == "info"
    assert "a step has" not in scaled.seen
    # Another seed of the same number of ranks is no other batch.
    assert "a step has" not in found(tmp_path / "4" / names[0], [tmp_path / "4" / names[1]]).seen
