"""What a study decides: budgets, comparison, and trials without a number."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.sweeps.studies import FINISHED, SUSPECTED, begin, run, sound, study
from vinedresser.errors import ConfigError
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.trial import TrialEnd


def survivors(curves: list[list[float]], eta: int, grace: int) -> list[int]:
    """Return how many epochs each curve is given by ASHA, done by hand.

    At the rungs grace * eta^k a curve goes on if it is among the best floor(n / eta), at least one,
    of the n values seen at that rung so far.
    """
    rungs: dict[int, list[float]] = {}
    given = []
    for curve in curves:
        length = len(curve)
        for epoch, value in enumerate(curve, start=1):
            rung = round(math.log(epoch / grace, eta)) if epoch >= grace else -1
            if rung < 0 or grace * eta**rung != epoch:
                continue
            seen = rungs.setdefault(rung, [])
            seen.append(value)
            best = sorted(seen, reverse=True)[: max(len(seen) // eta, 1)]
            if value < best[-1]:
                length = epoch
                break
        given.append(length)
    return given


@pytest.mark.parametrize(("eta", "grace"), [(3, 1), (2, 2)])
def test_asha_goes_on_with_the_best_at_each_rung(eta: int, grace: int) -> None:
    draw = random.Random(eta)
    curves = [[draw.random() for _ in range(16)] for _ in range(30)]
    sweep = study(pruner={"name": "asha", "eta": eta, "grace": grace}, sampler="random")
    for curve in curves:
        run(sweep, curve)
    assert [trial.epochs for trial in sweep.trials()] == survivors(curves, eta, grace)


def test_a_trial_that_is_pruned_says_with_what_it_was_compared() -> None:
    sweep = study()
    assert run(sweep, [0.9]) == FINISHED
    ending = run(sweep, [0.1, 0.2])
    assert ending.state == "pruned"
    assert re.search(r"epoch 1 .* best of 3 trials", ending.reason)


def test_a_suspected_trial_behind_the_sound_ones_is_stopped_and_counts_for_no_rung() -> None:
    sweep = study(pruner="asha")
    sound(sweep, [0.5, 0.6, 0.7, 0.8])
    number = begin(sweep).number
    ending = sweep.report(number, 1, 0.2, SUSPECTED)
    assert ending is not None
    assert (ending.state, ending.rule, ending.fault) == ("stopped", "all_zero", "dead")
    assert ending.remedy == "do not"
    assert re.match(
        r"the weights are zero; .*epoch 1 .*accuracy of 0\.2 .* 4 of 4 trials", ending.reason
    )
    assert sweep.tell(number, ending).values == {1: 0.2}
    # Of six values at the rung two go on, of five only one: that of the stopped one is none.
    pruned = sweep.report(begin(sweep).number, 1, 0.75)
    assert pruned is not None
    assert pruned.state == "pruned"
    assert re.search(r"epoch 1 .* best of 3 trials", pruned.reason)


def test_a_suspected_trial_goes_on_while_it_holds_its_own() -> None:
    sweep = study(pruner="asha")
    sound(sweep, [0.5, 0.6, 0.7, 0.8])
    assert sweep.report(begin(sweep).number, 1, 0.9, SUSPECTED) is None
    # The better half came to 0.75, the worse half began at 0.6: four fifths of the way are 0.72.
    # What is above, or better than most of the others, is compared by ASHA as any other.
    for value in (0.73, 0.71):
        ending = sweep.report(begin(sweep).number, 1, value, SUSPECTED)
        assert ending is not None
        assert ending.state == "pruned"
    ending = sweep.report(begin(sweep).number, 1, 0.69, SUSPECTED)
    assert ending is not None
    assert ending.state == "stopped"


def test_sound_trials_that_do_not_learn_are_no_measure() -> None:
    sweep = study(pruner={"name": "median", "startup": 50, "grace": 0})
    for value in (0.1, 0.12, 0.1, 0.8, 0.9, 0.9):
        assert sweep.report(begin(sweep).number, 1, value) is None
    ending = sweep.report(begin(sweep).number, 1, 0.14, SUSPECTED)
    assert ending is not None
    assert " 3 of 6 trials" in ending.reason
    assert sweep.report(begin(sweep).number, 1, 0.75, SUSPECTED) is None


@pytest.mark.parametrize("suspicion", [None, SUSPECTED])
def test_nobody_is_compared_with_what_a_trial_reports_that_is_to_end(
    suspicion: TrialEnd | None,
) -> None:
    sweep = study(pruner="asha")
    sound(sweep, [0.5, 0.6, 0.7, 0.8])
    number = begin(sweep).number
    assert sweep.report(number, 1, 0.2, suspicion) is not None
    # Until it hears of it, it trains on; had it a place at the next rung, it would be the first.
    assert sweep.report(number, 2, 0.9) is None
    assert sweep.report(number, 3, 0.95) is None
    other = begin(sweep).number
    assert sweep.report(other, 1, 0.85) is None
    assert sweep.report(other, 3, 0.86) is None
    assert sweep.tell(number, TrialEnd("pruned")).values == {1: 0.2, 2: 0.9, 3: 0.95}


def test_a_suspected_trial_that_learns_is_left_to_the_comparison() -> None:
    sweep = study(pruner={"name": "asha", "eta": 3, "grace": 3})
    numbers = [begin(sweep).number for _ in range(6)]
    # All begin at 0.1; the sound ones come to 0.9, two that are suspected to 0.85 and 0.4.
    for epoch, came in ((1, 0.1), (2, 0.5), (3, 0.9)):
        for number in numbers[:4]:
            assert sweep.report(number, epoch, came) is None
    for number, came in zip(numbers[4:], (0.85, 0.4), strict=True):
        assert sweep.report(number, 1, 0.1, SUSPECTED) is None
        ending = sweep.report(number, 3, came, SUSPECTED)
        assert ending is not None
        assert ending.state == ("pruned" if came == 0.85 else "stopped")


def test_suspected_trials_are_no_measure_for_others() -> None:
    sweep = study(pruner={"name": "median", "startup": 50, "grace": 0})
    assert sweep.report(begin(sweep).number, 1, 0.7) is None
    assert sweep.report(begin(sweep).number, 1, 0.9, SUSPECTED) is None
    # One that is sound is too few, whatever the other has come to.
    assert sweep.report(begin(sweep).number, 1, 0.1, SUSPECTED) is None
    assert sweep.report(begin(sweep).number, 1, 0.6) is None
    assert sweep.report(begin(sweep).number, 1, 0.1, SUSPECTED) is not None


def test_what_is_to_be_small_is_compared_the_other_way_round() -> None:
    sweep = study(pruner="asha", direction="minimize")
    sound(sweep, [0.5, 0.6, 0.7, 0.8])
    assert sweep.report(begin(sweep).number, 1, 0.1, SUSPECTED) is None
    ending = sweep.report(begin(sweep).number, 1, 0.9, SUSPECTED)
    assert ending is not None
    assert ending.rule == "all_zero"


def test_trials_that_blew_up_are_no_measure_of_how_far_the_others_came() -> None:
    sweep = study(pruner={"name": "median", "startup": 50, "grace": 1}, direction="minimize")
    blown = [begin(sweep).number for _ in range(4)]
    for number in blown:
        sweep.report(number, 1, 1e9)
        sweep.report(number, 2, 1e9, SUSPECTED)
    for came in (0.5, 0.6, 0.7, 0.8):
        number = begin(sweep).number
        sweep.report(number, 1, 2.3)
        assert sweep.report(number, 2, came) is None
    # From 2.3 to 0.55: four fifths of the way are 0.9.
    for came, kind in ((0.88, None), (0.92, "stopped")):
        number = begin(sweep).number
        sweep.report(number, 1, 2.3)
        ending = sweep.report(number, 2, came, SUSPECTED)
        assert (ending and ending.state) == kind


@pytest.mark.parametrize("pruner", ["none", "wilcoxon"])
def test_without_comparison_a_suspicion_ends_nothing(pruner: str) -> None:
    sweep = study(pruner=pruner)
    sound(sweep, [0.5, 0.6, 0.7, 0.8])
    assert not sweep.comparing
    assert sweep.report(begin(sweep).number, 1, 0.0, SUSPECTED) is None


def test_a_suspected_trial_is_behind_those_that_had_come_further_in_less_time() -> None:
    sweep = study(pruner="asha", epochs=9)
    number = begin(sweep).number
    # It is the first at its rung, where nobody can tell.
    assert sweep.report(number, 1, 0.1, SUSPECTED) is None
    assert sweep.report(number, 2, 0.2, SUSPECTED) is None
    sound(sweep, [0.7, 0.8])
    # None of them had a second epoch, nor needed one; and 4 is no rung.
    ending = sweep.report(number, 4, 0.4, SUSPECTED)
    assert ending is not None
    assert re.search(r"epoch 4 .*accuracy of 0\.4 .* 2 of 2 trials", ending.reason)
    # What they came to later is nothing to hold against a trial at an earlier epoch.
    late = study(pruner={"name": "median", "startup": 50, "grace": 0})
    for _ in range(2):
        other = begin(late).number
        for epoch, value in enumerate((0.1, 0.1, 0.9), start=1):
            assert late.report(other, epoch, value) is None
    assert late.report(begin(late).number, 2, 0.1, SUSPECTED) is None


@pytest.mark.parametrize(("pruner", "first"), [("asha", 2), ("hyperband", 2), ("median", 3)])
def test_suspected_trials_are_compared_from_the_grace_on(pruner: str, first: int) -> None:
    sweep = study(pruner={"name": pruner, "grace": 2}, epochs=20)
    assert [epoch for epoch in range(1, 21) if sweep.compares(epoch)] == [*range(first, 21)]


@pytest.mark.parametrize("pruner", ["none", "median", "asha", "hyperband", "wilcoxon"])
def test_no_number_is_an_end_whatever_compares(pruner: str) -> None:
    sweep = study(pruner=pruner, epochs=9)
    number = begin(sweep).number
    assert sweep.report(number, 1, 0.5) is None
    ending = sweep.report(number, 2, math.nan)
    assert ending is not None
    assert (ending.state, ending.fault) == ("stopped", "nonfinite")
    assert "accuracy is nan at epoch 2" in ending.reason
    assert sweep.tell(number, ending).values == {1: 0.5}


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", ["tpe", "gp", "cmaes", "random"])
def test_no_number_poisons_no_sampler(sampler: str) -> None:
    space = Space.parse({"lr": {"log": [1e-3, 1.0]}, "width": {"float": [0.0, 1.0]}}, "space")
    sweep = study(space=space, sampler=sampler, pruner="none", trials=25)
    while (trial := sweep.ask()) is not None:
        rate = float(trial.parameters["lr"])
        # Half of the space is broken.
        value = math.nan if rate > 0.03 else 1 - abs(math.log10(rate) + 2)
        ending = sweep.report(trial.number, 1, value)
        sweep.tell(trial.number, ending or FINISHED, [value])
    assert len(sweep.trials()) == 25
    best = sweep.best()[0]
    assert best.result[0] > 0.5
    assert all(math.isfinite(v) for one in sweep.trials() for v in one.result)


def test_an_end_without_a_number_is_no_finish() -> None:
    sweep = study()
    trial = sweep.tell(begin(sweep).number, FINISHED, [math.inf])
    assert trial.ending.state == "stopped"
    assert trial.result == ()
    assert sweep.best() == []


def test_points_come_first_and_grids_end() -> None:
    sweep = study(points=[{"lr": 0.5, "act": "tanh"}, {"lr": 0.25}], trials=3)
    first, second, third = begin(sweep), begin(sweep), begin(sweep)
    assert first.parameters == {"lr": 0.5, "act": "tanh"}
    assert second.parameters["lr"] == 0.25
    assert third.parameters["lr"] not in (0.5, 0.25)
    assert sweep.ask() is None
    space = Space.parse({"lr": [0.1, 1.0], "act": ["relu", "tanh"]}, "space")
    grid = study(space=space, sampler="grid", trials=None)
    seen = []
    while (proposal := grid.ask()) is not None:
        seen.append(dict(proposal.parameters))
    assert seen == space.grid()


def test_seeds_are_given_in_turn() -> None:
    sweep = study(seeds=[7, 8])
    assert [begin(sweep).seed for _ in range(5)] == [7, 8, 7, 8, 7]


def test_the_same_seed_and_results_make_the_same_trials() -> None:
    def trials(seed: int) -> list[Any]:
        sweep = study(trials=20, pruner="none", seed=seed)
        while (one := sweep.ask()) is not None:
            sweep.tell(one.number, FINISHED, [-abs(math.log10(float(one.parameters["lr"])) + 1)])
        return [trial.parameters for trial in sweep.trials()]

    assert trials(1) == trials(1) != trials(2)


def test_several_objectives_make_a_front() -> None:
    goals = [
        {"metric": "accuracy", "direction": "maximize"},
        {"metric": "latency", "direction": "minimize"},
    ]
    sweep = study(metric="", objectives=goals, pruner="none")
    for values in ([0.9, 5.0], [0.8, 1.0], [0.7, 2.0]):
        number = begin(sweep).number
        assert sweep.report(number, 1, values[0]) is None
        sweep.tell(number, FINISHED, values)
    assert sorted(one.result for one in sweep.best()) == [(0.8, 1.0), (0.9, 5.0)]


def test_epochs_are_counted_with_several_objectives_too(tmp_path: Path) -> None:
    goals = [{"metric": one, "direction": "maximize"} for one in ("accuracy", "speed")]
    path = tmp_path / "journal.log"
    sweep = study(path, metric="", objectives=goals, pruner="none", sampler="tpe")
    for end in ("finished", "stopped"):
        number = begin(sweep).number
        for epoch, value in ((1, 0.5), (2, 0.7), (2, 0.9), (1, 0.9)):
            assert sweep.report(number, epoch, value) is None
        nonfinite = sweep.report(number, 3, math.nan)
        assert nonfinite is not None
        assert nonfinite.fault == "nonfinite"
        sweep.tell(number, TrialEnd(end), [0.7, 1.0] if end == "finished" else [])
    sweep.close()
    resumed = study(path, metric="", objectives=goals, pruner="none", sampler="tpe")
    assert [(trial.epochs, trial.values) for trial in resumed.trials()] == [
        (2, {1: 0.5, 2: 0.7})
    ] * 2
    # Optuna's sampler must accept trials that ended early.
    for _ in range(12):
        resumed.tell(begin(resumed).number, FINISHED, [0.1, 0.2])
    resumed.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"metric": ""}, "sweep: metric: must be the name of the objective"),
        ({"trials": None}, "sweep: trials: is missing"),
        ({"trials": 0}, r"sweep\.trials: must be at least 1, not 0"),
        ({"wall_time": "soon"}, 'wall_time: must be a time such as "90 s", "30 min"'),
        ({"wall_time": -1}, "wall_time: must be above 0 seconds"),
        ({"retries": -1}, "retries: must be at least 0"),
        ({"direction": "up"}, "sweep.direction: "),
        ({"sampler": "tpee"}, "sampler: must be one of random, grid, tpe, gp, cmaes, nsgaii"),
        (
            {"sampler": {"name": "tpe", "statup": 3}},
            r"^sweep\.sampler\.statup: no such key; did you mean",
        ),
        ({"sampler": {"name": "random", "startup": 3}}, "sampler.startup: no such key"),
        ({"pruner": "ahsa"}, "pruner: must be one of none, median, asha"),
        ({"pruner": {"name": "asha", "eta": 1}}, r"^sweep\.pruner\.eta: must be at least 2"),
        ({"pruner": "hyperband"}, "epochs: is missing; Hyperband needs"),
        (
            {"points": [{"rl": 1.0}]},
            r"^sweep\.points\[0\]\.rl: not in the space; the space has lr, act",
        ),
        ({"sampler": "grid"}, "lr: a grid needs"),
        ({"trails": 3}, "sweep.trails: no such key; did you mean trials"),
        (
            {"metric": "", "objectives": [{"metric": m, "direction": "minimize"} for m in "ab"]},
            "pruner: 'asha' compares trials by one metric",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_key(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        study(**settings)
