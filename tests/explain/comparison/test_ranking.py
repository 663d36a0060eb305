"""The winner among configurations, with its spread over seeds."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.explain.reports.pages import finding
from vinedresser import compare, open_run
from vinedresser.errors import ConfigError, NotARun
from vinedresser.explain.comparison.compared_run import ComparedRun
from vinedresser.explain.comparison.ranking import Goal, Group, winner
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ExitRecord, findings_key, write_record
from vinedresser.store.run_settings import is_label, is_seed
from vinedresser.testing.runs import make_run, start_run, step_record

UP = Goal("eval/accuracy", "maximize")


def trained(place: Path, accuracy: float, **parameters: Any) -> None:
    """Make a finished run with an accuracy."""
    scalars = {"losses/MSELoss": 1 - accuracy, "metrics/accuracy": accuracy}
    record = step_record(9, mode="eval", scalars=scalars)
    make_run(place, [record], name=place.name, parameters=parameters)


def test_runs_that_differ_by_seed_are_one_configuration(tmp_path: Path) -> None:
    for seed, (low, high) in enumerate([(0.5, 0.9), (0.6, 0.7), (0.7, 0.8)]):
        place = f"out/low-{seed}"
        trained(tmp_path / f"low-{seed}", low, lr=0.1, data={"seed": seed}, output_dir=place)
        trained(tmp_path / f"high-{seed}", high, lr=0.2, data={"seed": seed})
    found = compare(tmp_path)
    assert [group.text for group in found.groups] == ["0.8 ± 0.1 (3 runs)", "0.6 ± 0.1 (3 runs)"]
    assert found.goal == UP
    opened = compare(open_run(tmp_path / name) for name in ("low-1", "high-1"))
    assert [run.name for run in opened.runs] == ["high-1", "low-1"]
    assert found.runs[0].name == "high-0"
    # Of the nine pairs, one is of equals.
    assert "ahead of low-0 and 2 more" in found.winner
    assert "can be chance: better in 8 of 9 pairs" in found.winner
    assert found.settings["lr"] == [0.2, 0.2, 0.2, 0.1, 0.1, 0.1]
    assert found.settings["data.seed"] == [0, 2, 1, 2, 1, 0]


@pytest.mark.parametrize("sizes", [(4, 4), (3, 5), (3, 3), (1, 6), (5, 5)])
def test_clearly_means_unlikely_among_all_exchanges_of_seeds(sizes: tuple[int, int]) -> None:
    first, second = sizes
    values = list(range(first + second))
    orders = list(itertools.combinations(values, first))

    def won(chosen: tuple[int, ...]) -> int:
        return sum(one > two for one in chosen for two in set(values) - set(chosen))

    statistics = [max(won(order), first * second - won(order)) for order in orders]
    for chosen, statistic in zip(orders, statistics, strict=True):
        others = tuple(sorted(set(values) - set(chosen)))
        if sum(chosen) / first <= sum(others) / second:
            continue
        as_clear = sum(one >= statistic for one in statistics)
        sentence = winner([group(chosen), group(others)], UP)
        assert ("clearly" in sentence) == (as_clear / len(orders) <= 0.05)


def group(values: tuple[int, ...]) -> Group:
    """Return a configuration with a value per seed."""
    run = cast("ComparedRun", SimpleNamespace(name="run"))
    return Group([run], [float(value) for value in values])


def test_a_run_repeated_with_the_same_seed_counts_once(tmp_path: Path) -> None:
    for name, seed, value in (("a", 1, 0.5), ("b", 1, 0.5), ("c", 2, 0.5), ("d", 3, 0.8)):
        trained(tmp_path / name, value, lr=0.1, seed=seed)
    assert compare(tmp_path).groups[0].values == [0.5, 0.5, 0.8]


def test_a_problem_of_the_best_run_is_said_with_it(tmp_path: Path) -> None:
    trained(tmp_path / "leaked", 0.9, lr=0.1)
    trained(tmp_path / "sound", 0.7, lr=0.2)
    line = json.dumps(finding(rule="data_leakage", severity="warning").to_json())
    LocalStorage(tmp_path / "leaked").put(findings_key("default"), [f"{line}\n".encode()])
    assert compare(tmp_path).winner.endswith("But a problem was found in it: data_leakage.")


def test_a_run_that_was_stopped_does_not_win(tmp_path: Path) -> None:
    trained(tmp_path / "done", 0.7, lr=0.1)
    start_run(tmp_path / "stopped", parameters={"lr": 1.0})
    write_record(LocalStorage(tmp_path / "stopped"), ExitRecord("stopped", "", 1.0, last_step=3))
    found = compare([tmp_path / "stopped", tmp_path / "done"])
    assert found.winner == "Best: done, eval/accuracy 0.7; no other configuration has finished."
    assert [run.verdict for run in found.runs] == [
        "finished; cannot tell: no rule has judged it",
        "stopped at step 3",
    ]
    assert math.isnan(found.groups[1].mean)


def test_without_parameters_the_arguments_count(tmp_path: Path) -> None:
    lines = {"a": "--lr 1 --seed 1", "b": "--lr 1 --seed=2", "c": "--lr 2 --seed 1"}
    # Nobody knows what was changed between these two.
    lines |= {"d": "", "e": ""}
    for name, line in lines.items():
        record = step_record(0, scalars={"losses/loss": 1.0})
        make_run(tmp_path / name, [record], command=["python", "train.py", *line.split()])
    groups = compare(tmp_path).groups
    assert sorted(sorted(run.name for run in group.runs) for group in groups) == [
        ["a", "b"],
        ["c"],
        ["d"],
        ["e"],
    ]


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("seed", True),
        ("data.seed", True),
        ("model-seed", True),
        ("random_state", True),
        ("seedling", False),
        ("speed", False),
    ],
)
def test_seeds_are_recognised_by_name(name: str, seed: bool) -> None:
    assert is_seed(name) == seed


def test_different_losses_are_not_compared(tmp_path: Path) -> None:
    for name, value in (("MSELoss", 0.1), ("CrossEntropyLoss", 2.0)):
        record = step_record(0, scalars={f"losses/{name}": value})
        make_run(tmp_path / name, [record], losses={name: {"type": name, "settings": {}}})
    expected = "No winner: the runs minimize different losses (CrossEntropyLoss, MSELoss)."
    assert compare(tmp_path).winner == expected


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    trained(tmp_path / "store" / "a", 0.5)
    trained(tmp_path / "store" / "b", 0.6)
    make_run(tmp_path / "store" / "c", [step_record(0, scalars={"metrics/width": 1.0})])
    with pytest.raises(ConfigError, match=r"two runs or more; given: .*a"):
        compare([tmp_path / "store" / "a", tmp_path / "store" / "b" / ".." / "a"])
    with pytest.raises(NotARun, match=r"these are stores: .*store"):
        compare(tmp_path)
    with pytest.raises(ConfigError, match="did you mean eval/accuracy"):
        compare(tmp_path / "store", metric="eval/acuracy")
    with pytest.raises(ConfigError, match="give maximize or minimize"):
        compare(tmp_path / "store", metric="train/width")
    assert compare(tmp_path / "store", metric="train/width", direction="minimize").goal
    assert compare(tmp_path / "store", direction="minimize").winner.startswith("Best: a")


def test_a_damaged_run_does_not_hide_the_others(tmp_path: Path) -> None:
    trained(tmp_path / "a", 0.5)
    trained(tmp_path / "b", 0.6)
    trained(tmp_path / "c", 0.6)
    (tmp_path / "c" / "run.json").write_text("{", encoding="utf-8")
    found = compare(tmp_path)
    assert [run.name for run in found.runs] == ["b", "a"]
    assert len(found.problems) == 1
    assert "c/run.json" in found.problems[0]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("output_dir", True),
        ("trainer.log-dir", True),
        ("logdir", True),
        ("save_path", True),
        ("run_name", True),
        ("name", False),
        ("model.name", False),
        ("data_dir", False),
        ("checkpoint_dir", False),
        ("catalog_dir", False),
        ("log", False),
        ("prun_name", False),
    ],
)
def test_labels_are_recognised_by_name(name: str, label: bool) -> None:
    assert is_label(name) == label
