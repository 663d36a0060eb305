"""Results of a study: sound trials, the best, the Pareto front, importance, running trials."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tests.sweeps.studies import FINISHED, SUSPECTED, begin, run, sound, study
from vinedresser.errors import CorruptData
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import TrialEnd

TWO = Space.parse({"lr": {"float": [0.0, 1.0]}, "noise": {"float": [0.0, 1.0]}}, "space")


def finished(one: Study, values: list[float]) -> None:
    """Run trials that finish with these values, one each."""
    for value in values:
        number = begin(one).number
        one.tell(number, FINISHED, [value])


def test_trials_that_a_rule_stopped_are_no_measure_for_others() -> None:
    sweep = study(pruner={"name": "median", "startup": 99, "grace": 0})
    stopped = TrialEnd("stopped", "broken", "all_zero", "dead", "do not")
    for value in (0.9, 0.9, 0.9):
        number = begin(sweep).number
        sweep.report(number, 1, value)
        sweep.tell(number, stopped)
    number = begin(sweep).number
    # No sound trial is left, so the suspected one is compared with none.
    assert sweep.report(number, 1, 0.5, SUSPECTED) is None
    sweep.tell(number, FINISHED, [0.5])
    sound(sweep, [0.6, 0.7])
    number = begin(sweep).number
    ending = sweep.report(number, 1, 0.1, SUSPECTED)
    assert ending is not None
    assert "2 of 2 trials without a symptom" in ending.reason


def test_a_sound_trial_is_measured_by_its_first_value_and_the_last_up_to_the_epoch() -> None:
    sweep = study(pruner={"name": "median", "startup": 99, "grace": 1})
    for values in ([0.1, 0.5, 0.9], [0.1, 0.5, 0.9]):
        assert run(sweep, values) == FINISHED
    number = begin(sweep).number
    assert sweep.report(number, 1, 0.1, SUSPECTED) is None
    # At epoch 2 the sound ones had 0.5, from 0.1: 0.42 is four fifths of the way.
    assert sweep.report(number, 2, 0.43, SUSPECTED) is None
    other = begin(sweep).number
    sweep.report(other, 1, 0.1, SUSPECTED)
    ending = sweep.report(other, 2, 0.41, SUSPECTED)
    assert ending is not None
    assert "2 of 2" in ending.reason


def test_importance_is_that_of_the_hyperparameter_that_decides() -> None:
    sweep = study(space=TWO, sampler="random", pruner="none", trials=40)
    for _ in range(40):
        proposal = begin(sweep)
        sweep.tell(proposal.number, FINISHED, [float(proposal.parameters["lr"]) ** 2])
    found = sweep.importance()
    assert set(found) == {"lr", "noise"}
    assert found["lr"] > 5 * found["noise"]
    assert sum(found.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("values", [[0.1, 0.2, 0.3], [0.5] * 6, [0.1, 0.2, 0.3, 0.1, 0.2, 0.3]])
def test_importance_needs_four_distinct_results(values: list[float]) -> None:
    sweep = study(space=TWO, sampler="random", pruner="none")
    finished(sweep, values)
    assert sweep.importance() == {}


def test_four_distinct_results_are_enough_for_importance() -> None:
    sweep = study(space=TWO, sampler="random", pruner="none")
    finished(sweep, [0.1, 0.2, 0.3, 0.4])
    assert set(sweep.importance()) == {"lr", "noise"}


def test_several_objectives_have_a_pareto_front() -> None:
    goals = [
        {"metric": "accuracy", "direction": "maximize"},
        {"metric": "latency", "direction": "minimize"},
    ]
    sweep = study(metric="", objectives=goals, pruner="none", sampler="random")
    for result in ([0.9, 5.0], [0.8, 1.0], [0.7, 3.0], [0.6, 2.0], [0.95, 9.0]):
        number = begin(sweep).number
        sweep.tell(number, FINISHED, result)
    assert sorted(trial.result for trial in sweep.best()) == [(0.8, 1.0), (0.9, 5.0), (0.95, 9.0)]


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_importance_with_several_objectives_is_that_for_the_first(direction: str) -> None:
    goals = [
        {"metric": "accuracy", "direction": direction},
        {"metric": "latency", "direction": "minimize"},
    ]
    one = study(space=TWO, direction=direction, sampler="random", pruner="none", trials=40)
    two = study(metric="", objectives=goals, space=TWO, sampler="random", pruner="none", trials=40)
    for _ in range(40):
        number, proposal = begin(one).number, begin(two)
        # The same proposals: random samplers have the same seed.
        assert one.trial(number).parameters == proposal.parameters
        lr, noise = (float(proposal.parameters[name]) for name in ("lr", "noise"))
        one.tell(number, FINISHED, [lr**2])
        two.tell(proposal.number, FINISHED, [lr**2, noise])
    assert two.importance() == pytest.approx(one.importance())


def test_a_trial_is_not_pruned_at_its_last_epoch() -> None:
    sweep = study(pruner={"name": "asha", "eta": 2, "grace": 1}, epochs=4, trials=40)
    for _ in range(4):
        number = begin(sweep).number
        for epoch in range(1, 5):
            assert sweep.report(number, epoch, 0.9) is None
        sweep.tell(number, FINISHED, [0.9])
    behind = begin(sweep).number
    assert [sweep.report(behind, epoch, 0.9 if epoch < 4 else 0.1) for epoch in range(1, 5)] == [
        None
    ] * 4
    early = begin(sweep).number
    assert sweep.report(early, 1, 0.9) is None
    ended = sweep.report(early, 2, 0.1)
    assert ended is not None
    assert ended.state == "pruned"


def test_running_trials_are_listed_by_number_until_they_end() -> None:
    sweep = study()
    numbers = [begin(sweep).number for _ in range(3)]
    assert [trial.number for trial in sweep.running()] == numbers
    sweep.tell(numbers[1], FINISHED, [0.5])
    assert [trial.number for trial in sweep.running()] == [numbers[0], numbers[2]]
    assert all(trial.ending.state == "running" for trial in sweep.running())


def test_a_resumed_study_has_all_that_the_first_process_knew(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    settings: dict[str, Any] = {"pruner": "none", "seeds": [7, 8], "points": [{"lr": 0.25}]}
    first = study(path, TWO, **settings)
    proposals = [begin(first) for _ in range(3)]
    assert proposals[0].parameters["lr"] == 0.25
    first.report(proposals[0].number, 1, 0.5)
    first.tell(proposals[0].number, FINISHED, [0.5])
    first.report(proposals[1].number, 1, 0.25)
    first.close()

    second = study(path, TWO, **settings)
    (ended,) = second.ended
    assert (ended.number, ended.result, ended.ending) == (0, (0.5,), FINISHED)
    assert ended.parameters == proposals[0].parameters
    assert second.again() == proposals[1:]
    assert [trial.number for trial in second.running()] == [1, 2]
    running = second.trial(1)
    assert (running.values, running.result, running.ending.state) == ({1: 0.25}, (), "running")
    assert running.parameters == proposals[1].parameters
    assert [trial.number for trial in second.trials()] == [0, 1, 2]
    second.tell(1, FINISHED, [0.25])
    # The point is not queued a second time.
    assert begin(second).parameters["lr"] != 0.25
    second.close()


def test_an_end_without_a_finite_value_names_the_metrics() -> None:
    sweep = study(pruner="none")
    number = begin(sweep).number
    ending = sweep.tell(number, FINISHED, [float("nan")]).ending
    assert ending == TrialEnd(
        "stopped", "no finite value of accuracy at its end", fault="nonfinite"
    )


def test_importance_counts_finished_trials_only() -> None:
    sweep = study(space=TWO, sampler="random", pruner="none", trials=40)
    finished(sweep, [0.1, 0.2, 0.3, 0.4])
    expected = sweep.importance()
    for value in (0.9, 0.8):
        number = begin(sweep).number
        sweep.report(number, 1, value)
        sweep.tell(number, TrialEnd("pruned", "worse"))
    assert sweep.importance() == expected


def test_one_objective_has_one_best_trial() -> None:
    sweep = study(pruner="none")
    assert sweep.best() == []
    finished(sweep, [0.2, 0.9, 0.9])
    assert [trial.number for trial in sweep.best()] == [1]


def optunas(path: Path) -> optuna.Study:
    """Return the study as Optuna reads it from the journal."""
    storage = JournalStorage(JournalFileBackend(str(path)))
    return optuna.load_study(study_name="sweep", storage=storage)


def test_importance_is_that_of_ped_anova(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    sweep = study(path, TWO, sampler="random", pruner="none", trials=40)
    for _ in range(12):
        proposal = begin(sweep)
        values = [float(proposal.parameters[name]) for name in ("lr", "noise")]
        sweep.tell(proposal.number, FINISHED, [values[0] + values[1] ** 2])
    found = sweep.importance()
    sweep.close()
    expected = get_param_importances(optunas(path), evaluator=PedAnovaImportanceEvaluator())
    assert found == pytest.approx(expected)


def test_pruned_and_running_trials_are_no_results() -> None:
    sweep = study(space=TWO, sampler="random", pruner="none", trials=40)
    finished(sweep, [0.1, 0.2, 0.3])
    for value in (0.4, 0.5):
        number = begin(sweep).number
        sweep.report(number, 1, value)
        pruned = sweep.tell(number, TrialEnd("pruned", "worse"))
        assert (pruned.values, pruned.result) == ({1: value}, ())
    begin(sweep)
    assert sweep.importance() == {}
    assert sweep.best()[0].result == (0.3,)


def test_an_epoch_is_reported_once() -> None:
    sweep = study(pruner="none")
    number = begin(sweep).number
    for epoch, value in ((2, 0.5), (2, 0.9), (1, 0.9), (3, 0.6)):
        assert sweep.report(number, epoch, value) is None
    assert sweep.trial(number).values == {2: 0.5, 3: 0.6}


def test_several_missing_results_are_named() -> None:
    goals = [{"metric": metric, "direction": "maximize"} for metric in ("accuracy", "recall")]
    sweep = study(metric="", objectives=goals, pruner="none", sampler="random")
    ending = sweep.tell(begin(sweep).number, FINISHED, [0.5]).ending
    assert (ending.state, ending.fault) == ("stopped", "nonfinite")
    assert "no finite value of accuracy, recall" in ending.reason


def test_parameters_keep_the_order_of_the_space(tmp_path: Path) -> None:
    space = Space.parse({name: {"float": [0.0, 1.0]} for name in "cab"}, "space")
    sweep = study(tmp_path / "journal.log", space, sampler="random", pruner="none")
    number = begin(sweep).number
    assert list(sweep.trial(number).parameters) == ["c", "a", "b"]
    sweep.close()
    resumed = study(tmp_path / "journal.log", space, sampler="random", pruner="none")
    assert list(resumed.trial(number).parameters) == ["c", "a", "b"]
    resumed.close()


def test_a_resumed_trial_that_was_told_to_end_is_told_once_more(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"pruner": {"name": "median", "startup": 1, "grace": 0}}
    first = study(tmp_path / "journal.log", **settings)
    run(first, [0.9, 0.9])
    number = begin(first).number
    ending = first.report(number, 1, 0.1)
    assert ending is not None
    assert ending.state == "pruned"
    first.close()
    second = study(tmp_path / "journal.log", **settings)
    assert [one.number for one in second.again()] == [number]
    assert [second.report(number, 1, 0.1) for _ in range(2)] == [ending, None]
    second.close()


def test_the_journal_of_another_study_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    optuna.create_study(storage=JournalStorage(JournalFileBackend(str(path))), study_name="other")
    with pytest.raises(CorruptData, match=re.escape(str(path))):
        study(path)


def test_a_process_killed_while_a_trial_begins_or_ends(tmp_path: Path) -> None:
    """One trial has no parameters yet; of another only the reason for its end was written."""
    path = tmp_path / "journal.log"
    sweep = study(path, TWO, sampler="random", pruner="none")
    proposal = begin(sweep)
    sweep.close()
    other = optunas(path)
    running = optuna.trial.Trial(other, other.trials[0]._trial_id)
    running.set_user_attr("ending", {"state": "failed", "reason": "lost"})
    other.ask()

    resumed = study(path, TWO, sampler="random", pruner="none")
    assert resumed.ended == []
    assert [trial.ending.state for trial in resumed.trials()] == ["running", "running"]
    assert resumed.trial(1).parameters == {}
    first, second = resumed.again()
    assert first == proposal
    assert set(second.parameters) == {"lr", "noise"}
    assert resumed.trial(1).parameters == second.parameters
    resumed.close()


def test_a_resumed_study_starts_as_many_trials_as_were_left(tmp_path: Path) -> None:
    path, settings = tmp_path / "journal.log", {"trials": 4, "pruner": "none"}
    points = [{"lr": 0.25}, {"lr": 0.5}, {"lr": 0.75}]
    first = study(path, TWO, points=points, **settings)
    assert begin(first).parameters["lr"] == 0.25
    first.close()
    second = study(path, TWO, points=points, **settings)
    assert [begin(second).parameters["lr"] for _ in range(2)] == [0.5, 0.75]
    assert begin(second).number == 3
    assert second.ask() is None
    second.close()


def test_a_resumed_grid_ends_with_its_last_combination(tmp_path: Path) -> None:
    space = Space.parse({"lr": [0.1, 1.0], "act": ["relu", "tanh"]}, "space")
    settings: dict[str, Any] = {"sampler": "grid", "trials": None, "points": [{"lr": 0.1}]}
    first = study(tmp_path / "journal.log", space, **settings)
    found = [begin(first).parameters for _ in range(3)]
    first.close()
    second = study(tmp_path / "journal.log", space, **settings)
    while (proposal := second.ask()) is not None:
        found.append(proposal.parameters)
    second.close()
    # The point comes first, and no combination is tried twice.
    assert found[0]["lr"] == 0.1
    assert found[1:] == [one for one in space.grid() if one != found[0]]


def test_a_resumed_trial_keeps_its_parameters(tmp_path: Path) -> None:
    """Its training has begun with them, whatever the file says now."""
    first = study(tmp_path / "journal.log", TWO, sampler="random", pruner="none")
    proposal = begin(first)
    first.close()
    other = Space.parse({"lr": {"float": [5.0, 6.0]}, "width": {"float": [0.0, 1.0]}}, "space")
    second = study(tmp_path / "journal.log", other, sampler="random", pruner="none")
    assert second.again() == [proposal]
    second.close()


def test_a_stopped_trial_is_evidence_for_the_median() -> None:
    """Up to its last epoch it is what a finished one is; a pruned or failed one is not."""

    def decisions(state: str) -> list[TrialEnd | None]:
        sweep = study(pruner={"name": "median", "startup": 3, "grace": 0}, sampler="random")
        ends: list[Any] = [
            (TrialEnd(state, "?", "all_zero"), [0.1, 0.2]),  # type: ignore[arg-type]
            (TrialEnd(state, "?", "all_zero"), [0.3]),  # type: ignore[arg-type]
            (FINISHED, [0.5, 0.6, 0.7]),
        ]
        for ending, values in ends:
            number = begin(sweep).number
            for epoch, value in enumerate(values, start=1):
                sweep.report(number, epoch, value)
            sweep.tell(number, ending, values[-1:])
        # The medians are those of 0.1, 0.3 and 0.5; of 0.2 and 0.6; and 0.7.
        found: list[TrialEnd | None] = []
        for epoch, values in ((1, [0.31, 0.29]), (2, [0.41, 0.39]), (3, [0.71, 0.69])):
            found += [sweep.report(begin(sweep).number, epoch, value) for value in values]
        return found

    ended = [decision is not None for decision in decisions("stopped")]
    assert ended == [False, True] * 3
    # One trial that has finished is too few.
    assert decisions("pruned") == decisions("failed") == [None] * 6
