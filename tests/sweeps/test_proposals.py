"""The configurations of a study depend on its journal alone, and none is tried twice."""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.sweeps.studies import FINISHED, begin, study
from vinedresser.errors import ConfigError
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import Proposal, Trial, TrialEnd

NUMBERS = Space.parse(
    {
        "lr": {"log": [1e-3, 1.0]},
        "width": {"int": [1, 64]},
        "drop": {"float": [0, 1], "step": 0.05},
    },
    "space",
)
MIXED = Space.parse(
    {
        "lr": {"log": [1e-3, 1.0]},
        "act": ["relu", "tanh"],
        "momentum": {"float": [0.0, 1.0], "when": {"act": "tanh"}},
    },
    "space",
)
# Twelve configurations: with a momentum 3 x 3, without one 3.
SMALL = Space.parse(
    {
        "layers": {"int": [1, 3]},
        "opt": ["adam", "sgd"],
        "momentum": {"float": [0.0, 0.5], "step": 0.25, "when": {"opt": "sgd"}},
    },
    "space",
)
SAMPLERS: list[Any] = [
    "random",
    {"name": "tpe", "startup": 3},
    {"name": "cmaes", "startup": 2},
    pytest.param({"name": "gp", "startup": 3}, marks=pytest.mark.thorough),
]
BROKEN = TrialEnd("failed", "a typo in the script")


def finish(one: Study, number: int, parameters: Mapping[str, Any]) -> None:
    """Report three values that depend on the parameters only, and tell how the trial ended."""
    value = 1.0 - abs(float(parameters.get("lr", parameters.get("layers", 1))) - 0.3)
    for epoch in range(1, 4):
        if ending := one.report(number, epoch, value * epoch / 3):
            one.tell(number, ending)
            return
    one.tell(number, FINISHED, [value])


def drive(one: Study) -> list[Trial]:
    """Run all trials, those of an earlier process first; return all trials, and close the study."""
    for proposal in one.again():
        finish(one, proposal.number, proposal.parameters)
    while (asked := one.ask()) is not None:
        finish(one, asked.number, asked.parameters)
    one.close()
    return one.trials()


def tried(trials: list[Trial]) -> list[str]:
    return [json.dumps(dict(trial.parameters)) for trial in trials]


@pytest.mark.parametrize(
    ("space", "pruner"), [(NUMBERS, "asha"), (MIXED, "median"), (NUMBERS, "hyperband")]
)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_sweep_in_parts_tries_what_it_tries_in_one_go(
    tmp_path: Path, sampler: Any, space: Space, pruner: str
) -> None:
    settings = {"sampler": sampler, "pruner": pruner, "epochs": 3}
    whole = drive(study(tmp_path / "whole.log", space, trials=9, **settings))
    for trials in (2, 4, 9):
        parts = drive(study(tmp_path / "parts.log", space, trials=trials, **settings))
        assert parts == whole[:trials]
    assert len(set(tried(parts))) == 9


def test_a_grid_in_parts_is_the_whole_grid(tmp_path: Path) -> None:
    for trials in (5, 5, 9, 30):
        one = study(tmp_path / "journal.log", SMALL, sampler="grid", trials=trials, pruner="none")
        found = drive(one)
        assert len(found) == min(trials, 12)
    assert [dict(trial.parameters) for trial in found] == SMALL.grid()
    assert one.over == "all 12 configurations of the grid have been tried"


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_sweep_killed_at_any_line_of_its_journal_tries_the_same(
    tmp_path: Path, sampler: Any
) -> None:
    path = tmp_path / "journal.log"
    expected = drive(study(path, NUMBERS, sampler=sampler, trials=6, points=[{"lr": 0.5}]))
    lines = path.read_bytes().splitlines(keepends=True)
    # The first two create the study; all of the last trials, and some lines of the others.
    for count in range(2, len(lines), 4 if sampler == "random" else 9):
        path.write_bytes(b"".join(lines[:count]) + lines[count][:20])
        resumed = study(path, NUMBERS, sampler=sampler, trials=6, points=[{"lr": 0.5}])
        assert drive(resumed) == expected, lines[count]


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_small_space_is_tried_once_and_then_said_to_be_exhausted(
    tmp_path: Path, sampler: Any
) -> None:
    one = study(tmp_path / "journal.log", SMALL, sampler=sampler, trials=30, pruner="none")
    assert one.planned == 12
    found = drive(one)
    assert len(set(tried(found))) == len(found) == 12
    assert one.over == "all 12 configurations of the space have been tried"
    # Also if the sweep is resumed.
    again = study(tmp_path / "journal.log", SMALL, sampler=sampler, trials=30, pruner="none")
    assert again.ask() is None
    again.close()


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_concurrent_trials_repeat_nothing_also_after_a_kill(tmp_path: Path, sampler: Any) -> None:
    settings: dict[str, Any] = {"sampler": sampler, "trials": 10, "pruner": "none"}

    def side_by_side(path: Path, *stops: int) -> list[Trial]:
        """Run three trials at a time; end the process after some trials were told."""
        one = study(path, SMALL, **settings)
        running: list[Proposal] = []
        told = 0
        while True:
            while len(running) < 3 and (asked := one.ask()) is not None:
                running.append(asked)
            if not running:
                break
            # The newest one ends first.
            ended = running.pop()
            finish(one, ended.number, ended.parameters)
            told += 1
            if told in stops:
                one.close()
                one = study(path, SMALL, **settings)
                assert one.again() == running
        one.close()
        return one.trials()

    whole = side_by_side(tmp_path / "whole.log")
    assert side_by_side(tmp_path / "parts.log", 1, 4, 5) == whole
    assert len(set(tried(whole))) == 10


@pytest.mark.parametrize("key", ["lr", "width"])
def test_a_value_that_is_rounded_is_no_other_configuration(key: str) -> None:
    space = Space.parse({"lr": {"float": [0.0, 0.4], "step": 0.1}, "width": {"int": [1, 2]}}, "s")
    one = study(space=space, sampler="random", trials=20, points=[{"lr": 0.1 + 0.2, "width": 2}])
    found = [trial.parameters[key] for trial in drive(one)]
    assert len(found) == 10
    assert found[0] == {"lr": 0.1 + 0.2, "width": 2}[key]


def test_a_point_between_the_steps_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"points\[0\].lr: must be 0 plus a multiple of .* 0.1"):
        study(space=Space.parse({"lr": {"float": [0, 1], "step": 0.1}}, "s"), points=[{"lr": 0.25}])


def test_points_added_to_a_sweep_are_tried_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    settings: dict[str, Any] = {"sampler": "random", "pruner": "none"}
    first = [{"lr": 0.5, "act": "relu"}]
    before = drive(study(path, MIXED, trials=3, points=first, **settings))
    # One of them was tried by chance; another has a value to be proposed.
    points = [dict(before[2].parameters), *first, {"lr": 0.25, "act": "relu"}, {"lr": 0.125}]
    one = study(path, MIXED, trials=3, points=points, **settings)
    assert one.planned == 5
    found = drive(one)
    assert found[:3] == before
    assert found[3].parameters == {"lr": 0.25, "act": "relu"}
    assert found[4].parameters["lr"] == 0.125
    assert len(found) == 5
    # Not a second time; and the sweep continues as it would have.
    more = drive(study(path, MIXED, trials=7, points=points, **settings))
    assert more[:5] == found
    assert len(set(tried(more))) == len(more) == 7


def test_equal_points_are_refused() -> None:
    equal = [{"lr": 0.5, "act": "relu"}, {"act": "tanh"}, {"act": "relu", "momentum": 1, "lr": 0.5}]
    with pytest.raises(ConfigError, match=r"points\[2\]: the same configuration as .*points\[0\]"):
        study(space=MIXED, points=equal)
    # What is missing is proposed, and differs.
    one = study(space=SMALL, points=[{"layers": 2}, {"layers": 2}], trials=2)
    assert len(set(tried(drive(one)))) == 2


def test_repeats_try_each_configuration_several_times_with_other_seeds(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "sampler": "random",
        "pruner": "none",
        "repeats": 3,
        "seeds": [7, 8, 9],
        "points": [{"lr": 0.5, "act": "relu"}],
    }
    one = study(tmp_path / "journal.log", MIXED, trials=5, **settings)
    asked = [begin(one) for _ in range(5)]
    one.close()
    assert [proposal.seed for proposal in asked] == [7, 8, 9, 7, 8]
    assert asked[0].parameters == asked[2].parameters == {"lr": 0.5, "act": "relu"}
    assert asked[3].parameters == asked[4].parameters != asked[0].parameters
    resumed = study(tmp_path / "journal.log", MIXED, trials=7, **settings)
    assert resumed.again() == asked
    sixth, seventh = begin(resumed), begin(resumed)
    assert (sixth.seed, sixth.parameters) == (9, asked[3].parameters)
    assert (seventh.seed, seventh.parameters not in [one.parameters for one in asked]) == (7, True)
    resumed.close()
    one = study(space=SMALL, sampler="grid", trials=None, repeats=2, pruner="none")
    assert one.planned == 24
    assert len(drive(one)) == 24
    assert one.over is not None
    assert re.findall(r"\d+", one.over) == ["12", "2"]
    with pytest.raises(ConfigError, match=r"seeds: must be at least 3, .* there are 2"):
        study(repeats=3, seeds=[1, 2])


def failing(path: Path, *failed: int) -> list[Trial]:
    """Run six trials of which some fail."""
    one = study(path, MIXED, sampler="random", pruner="none", trials=6, seeds=[5, 6, 7, 8])
    while (asked := one.ask()) is not None:
        if asked.number in failed:
            one.tell(asked.number, BROKEN)
        else:
            finish(one, asked.number, asked.parameters)
    one.close()
    return one.trials()


def resume(path: Path, *, retry: bool, trials: int = 6) -> Study:
    settings: dict[str, Any] = {"trials": trials, "seeds": [5, 6, 7, 8]}
    one = study(path, MIXED, sampler="random", pruner="none", **settings)
    if retry:
        one.retry_failed()
    return one


def test_failed_trials_are_tried_again_with_their_configuration_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    before = failing(path, 1, 4)
    one = resume(path, retry=False)
    assert one.ask() is None, "a failed trial counts"
    one.close()
    one = resume(path, retry=True)
    # In the journal, so that a process that is killed now leaves them to the next one.
    one.close()
    one = resume(path, retry=False)
    assert one.planned == 8
    first = begin(one)
    assert (first.number, first.parameters, first.seed) == (6, before[1].parameters, 6)
    one.tell(6, BROKEN)
    second = begin(one)
    assert (second.number, second.parameters, second.seed) == (7, before[4].parameters, 5)
    finish(one, 7, second.parameters)
    assert one.ask() is None, "the others have their results"
    one.close()
    # The one that failed again, with the seed of the first; not those that finished.
    one = resume(path, retry=True)
    assert begin(one) == Proposal(8, before[1].parameters, 6)
    assert one.ask() is None
    finish(one, 8, before[1].parameters)
    assert [trial.retried_as for trial in one.trials()] == [
        None,
        6,
        None,
        None,
        7,
        None,
        8,
        *[None] * 2,
    ]
    assert one.trial(1).why == "a typo in the script; again as trial-0006"
    one.close()
    # A longer sweep is what it would have been had none failed.
    longer = resume(path, retry=True, trials=8)
    assert longer.planned == 11
    assert len(set(tried(drive(longer)))) == 8
    assert longer.trials()[9].number == 9


def test_a_retry_killed_at_any_line_of_its_journal_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    failing(path, 1, 4)
    begun = len(path.read_bytes().splitlines())
    expected = drive(resume(path, retry=True))
    lines = path.read_bytes().splitlines(keepends=True)
    for count in range(begun, len(lines)):
        path.write_bytes(b"".join(lines[:count]))
        assert drive(resume(path, retry=True)) == expected, lines[count]


def test_points_and_failed_trials_of_a_grid_do_not_make_it_longer(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"sampler": "grid", "trials": None, "pruner": "none"}
    points = [{"layers": 2, "opt": "adam"}, {"layers": 3}]
    one = study(tmp_path / "journal.log", SMALL, points=points, **settings)
    one.tell(begin(one).number, BROKEN)
    assert len(set(tried(drive(one)))) == 12
    one = study(tmp_path / "journal.log", SMALL, points=points, **settings)
    assert one.retry_failed() == 1
    assert len(drive(one)) == 13


def test_a_journal_from_before_a_queue_was_needed_is_continued(tmp_path: Path) -> None:
    """Formerly all points and the whole grid were queued when a sweep was made."""
    path = tmp_path / "journal.log"
    one = study(path, SMALL, sampler="grid", trials=4, pruner="none")
    for combination in SMALL.grid():
        one._study.enqueue_trial(combination)
    one.close()
    assert len(drive(study(path, SMALL, sampler="grid", trials=4, pruner="none"))) == 4
    found = drive(study(path, SMALL, sampler="grid", trials=None, pruner="none"))
    assert [dict(trial.parameters) for trial in found] == SMALL.grid()


class Marker:
    """Makes a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_the_journal_of_a_stranger_runs_nothing(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"sampler": {"name": "cmaes", "startup": 1}, "pruner": "none"}
    path = tmp_path / "journal.log"
    assert len(drive(study(path, NUMBERS, trials=30, **settings))) == 30
    assert "optimizer" not in path.read_text(encoding="utf-8")
    one = study(path, NUMBERS, trials=40, **settings)
    last = one._study.trials[-1]._trial_id
    poison = pickle.dumps(Marker(tmp_path / "made")).hex()
    for name in ("cma:optimizer:0", "cma:optimizer"):
        line = {"op_code": 9, "worker_id": "x", "trial_id": last, "system_attr": {name: poison}}
        one._journal.append_logs([line])  # type: ignore[union-attr]
    drive(one)
    assert not (tmp_path / "made").exists()


def test_cma_es_comes_closer_than_chance() -> None:
    def best(sampler: Any) -> float:
        space = Space.parse({name: {"float": [0.0, 1.0]} for name in "abc"}, "space")
        one = study(space=space, sampler=sampler, pruner="none", trials=120, direction="minimize")
        while (asked := one.ask()) is not None:
            aims = {"a": 0.2, "b": 0.7, "c": 0.4}
            far = [float(asked.parameters[name]) - aim for name, aim in aims.items()]
            one.tell(asked.number, FINISHED, [sum(one**2 for one in far)])
        return one.best()[0].result[0]

    assert best("cmaes") < best("random") / 20
