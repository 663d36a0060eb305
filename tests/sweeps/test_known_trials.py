"""A sweep that starts from the trials of another one."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.sweeps.studies import FINISHED, begin, run, study
from vinedresser.errors import ConfigError, CorruptData
from vinedresser.infra.configuration import build
from vinedresser.objects import LocalStorage
from vinedresser.store.records import write_record
from vinedresser.sweeps.journal import read_journal
from vinedresser.sweeps.known_trials import known_trials
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.spec import SweepRecord
from vinedresser.sweeps.trial import TrialEnd

OLD = {"x": {"float": [0.0, 1.0]}, "act": ["relu", "tanh"]}
NARROW = Space.parse({"x": {"float": [0.0, 0.5]}, "act": ["relu", "tanh"]}, "space")
TABLE = {"metric": "accuracy", "direction": "maximize", "trials": 30}


def score(parameters: Any) -> float:
    """Return what is largest at x = 0.4 with tanh."""
    distance = float(parameters["x"]) - 0.4
    return 1 - distance * distance - (0.1 if parameters["act"] == "relu" else 0.0)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a sweep of 20 finished trials, a failed one and a pruned one."""
    folder = tmp_path_factory.mktemp("earlier")
    space = Space.parse(OLD, "space")
    sweep = study(folder / "journal.log", space=space, sampler="random", pruner="none")
    for _ in range(20):
        proposal = begin(sweep)
        sweep.tell(proposal.number, FINISHED, [score(proposal.parameters)])
    sweep.tell(begin(sweep).number, TrialEnd("failed", "a typo"))
    sweep.tell(begin(sweep).number, TrialEnd("pruned", "worse"))
    # One that runs, and a line that is written at this moment.
    begin(sweep)
    sweep.close()
    with (folder / "journal.log").open("a", encoding="utf-8") as file:
        file.write('{"op_code": 9, "worker')
    record = SweepRecord(
        name="search-1",
        space=space.to_json(),
        command=["python"],
        parameters={},
        objectives=[asdict(goal) for goal in build(SweepTable, TABLE, "sweep").goals],
        epochs=None,
        created=1.0,
        tracking_uri="",
        experiment_id="",
        id="a" * 32,
    )
    write_record(LocalStorage(folder), record)
    return folder


def settings(**more: Any) -> SweepTable:
    return build(SweepTable, TABLE | more, "sweep.toml: sweep")


def test_trials_that_fit_the_space_are_known(earlier: Path) -> None:
    before = (earlier / "journal.log").read_bytes()
    known = known_trials(earlier, settings(), NARROW, "warm_start")
    stored = read_journal(earlier / "journal.log")
    fitting = [one for one in stored if one.values and one.params["x"] <= 0.5]
    assert [one.params for one in known.trials] == [one.params for one in fitting]
    assert [one.values for one in known.trials] == [one.values for one in fitting]
    assert known.said == f"starts from {len(fitting)} of 20 finished trials of search-1"
    assert 0 < len(fitting) < 20
    # The other sweep may be running.
    assert (earlier / "journal.log").read_bytes() == before


def test_the_sampler_learns_from_them_as_optuna_does(earlier: Path) -> None:
    known = known_trials(earlier, settings(), NARROW, "warm_start").trials
    sweep = study(space=NARROW, sampler={"name": "tpe", "startup": 5}, pruner="none", seed=3)
    sweep.learn(known)
    direct = optuna.create_study(direction="maximize")
    direct.add_trials(known)
    for _ in range(12):
        proposal = begin(sweep)
        seed = zlib.crc32(f"3 {proposal.number}".encode())
        direct.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=5)
        trial = direct.ask()
        trial.suggest_float("x", 0.0, 0.5)
        trial.suggest_categorical("act", ("relu", "tanh"))
        assert proposal.number == trial.number
        assert proposal.parameters == trial.params
        sweep.tell(proposal.number, FINISHED, [score(trial.params)])
        direct.tell(trial, score(trial.params))


def test_known_trials_are_none_of_the_sweep(earlier: Path, tmp_path: Path) -> None:
    known = known_trials(earlier, settings(), NARROW, "warm_start").trials
    path = tmp_path / "journal.log"
    for _ in range(2):
        # A process that was killed before its first trial adds none twice.
        sweep = study(path, space=NARROW, sampler="random", pruner="none", trials=2)
        sweep.learn(known)
        sweep.close()
    sweep = study(path, space=NARROW, sampler="random", pruner="none", trials=2)
    assert sweep.trials() == sweep.best() == []
    assert sweep.planned == 2
    for value in (0.1, 0.2):
        sweep.tell(begin(sweep).number, FINISHED, [value])
    assert sweep.ask() is None
    assert [trial.number for trial in sweep.trials()] == [len(known), len(known) + 1]
    # The others were better.
    assert [trial.result for trial in sweep.best()] == [(0.2,)]
    sweep.close()


def test_pruners_compare_with_trials_of_the_sweep_only(earlier: Path) -> None:
    known = known_trials(earlier, settings(), NARROW, "warm_start").trials
    folds = [0.5 + 0.01 * fold for fold in range(8)]
    worse = [0.2 + 0.005 * fold for fold in range(8)]
    median = study(space=NARROW, sampler="random", pruner={"name": "median", "startup": 2})
    median.learn(known)
    # The trials of the other sweep are not those for which it waits.
    assert [run(median, one).state for one in (folds, worse, worse)] == [
        "finished",
        "finished",
        "pruned",
    ]
    paired = study(space=NARROW, sampler="random", pruner="wilcoxon")
    paired.learn(known)
    # The best of the other sweep is better, but its folds are unknown.
    assert [run(paired, one).state for one in (folds, worse)] == ["finished", "pruned"]
    assert [trial.result for trial in paired.best()] == [(folds[-1],)]


@pytest.mark.parametrize(
    ("more", "space", "said"),
    [
        (
            {"direction": "minimize"},
            OLD,
            r"its objective is accuracy \(maximize, last, eval\), and",
        ),
        ({"constraints": [{"metric": "size", "max": 1}]}, OLD, "none of the 20 finished trials"),
        ({}, {"y": [1, 2]}, "none of the 20 finished trials of search-1 fits the space"),
    ],
)
def test_another_sweep_that_says_nothing_is_refused(
    earlier: Path, more: dict[str, Any], space: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        known_trials(earlier, settings(**more), Space.parse(space, "space"), "warm_start")


@pytest.mark.parametrize("sampler", ["random", "grid", {"name": "cmaes", "startup": 3}])
def test_a_sampler_that_would_not_learn_is_refused(sampler: Any) -> None:
    with pytest.raises(ConfigError, match=r"warm_start: .* does not learn from other sweeps"):
        settings(sampler=sampler, warm_start="runs/search-1")


def test_a_folder_without_a_sweep_and_a_damaged_journal_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"warm_start: .* is not the folder of a sweep"):
        known_trials(tmp_path, settings(), NARROW, "warm_start")
    (tmp_path / "journal.log").write_text("nonsense\n", encoding="utf-8")
    with pytest.raises(CorruptData, match="line 1 is not an entry of a journal"):
        read_journal(tmp_path / "journal.log")


def test_a_stored_space_is_the_space() -> None:
    table: Callable[[], dict[str, Any]] = lambda: {  # noqa: E731
        "lr": {"log": [1e-3, 1.0]},
        "drop": {"float": [0.0, 0.5], "step": 0.1},
        "layers": {"int": [1, 8], "log": True},
        "act": ["relu", 16, True],
        "momentum": {"float": [0.0, 0.9], "when": {"act": ["relu", 16]}},
    }
    space = Space.parse(table(), "space")
    again = Space.from_json(space.to_json(), "stored")
    assert again.to_json() == space.to_json()
    assert {one.name: one for one in again.dimensions} == {
        one.name: one for one in space.dimensions
    }
