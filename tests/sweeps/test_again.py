"""The best trial trains again with other seeds, when all others are over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sweeps.studies import FINISHED, SUSPECTED, begin, run, study
from vinedresser.errors import ConfigError
from vinedresser.sweeps.enough import enough
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import TrialEnd, results_again, spread
from vinedresser.tasks.sweeping.sweep_result import SweepResult


def made(path: Path | None = None, **more: Any) -> Study:
    return study(
        path, **{"trials": 3, "pruner": "none", "sampler": "random", "again": [7, 8], **more}
    )


def test_the_best_trial_is_trained_with_each_seed() -> None:
    sweep = made()
    for value in (0.5, 0.9, 0.7):
        run(sweep, [value])
    assert sweep.ask() is None
    best = sweep.trials()[1]
    for seed, value in ((7, 0.95), (8, 0.85)):
        proposal = sweep.train_again()
        assert proposal is not None
        assert (proposal.parameters, proposal.seed) == (best.parameters, seed)
        told = sweep.tell(proposal.number, FINISHED, [value])
        assert told.why == f"trial-0001 again with seed {seed}"
    assert sweep.train_again() is None
    # The better one of them is not the best trial.
    assert [trial.number for trial in sweep.best()] == [1]
    assert results_again(sweep.trials(), sweep.best()) == [0.95, 0.85]
    assert spread([0.95, 0.85]) == "0.9 ± 0.071 (0.85 to 0.95)"
    assert enough(made(target=0.95).settings, sweep.ended) == ""


def test_a_killed_sweep_trains_each_seed_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    sweep = made(path)
    for value in (0.5, 0.9, 0.7):
        run(sweep, [value])
    first = sweep.train_again()
    assert first is not None
    sweep.close()
    resumed = made(path)
    (left,) = resumed.again()
    assert (left.number, left.seed) == (first.number, 7)
    resumed.tell(left.number, FINISHED, [0.8])
    # The other seed was in the journal, too, and is no trial of the sampler's.
    seeds = []
    while (proposal := resumed.ask() or resumed.train_again()) is not None:
        seeds.append(proposal.seed)
        resumed.tell(proposal.number, FINISHED, [0.8])
    assert seeds == [8]
    assert len(resumed.trials()) == 5
    resumed.close()
    longer = made(path, trials=4)
    assert longer.planned == 6
    # A longer sweep has another best trial, which trains again, too.
    number = begin(longer).number
    longer.tell(number, FINISHED, [0.99])
    assert longer.ask() is None
    again = longer.train_again()
    assert again is not None
    assert longer.trial(again.number).again == (number, 7)
    longer.close()


@pytest.mark.parametrize("pruner", ["asha", {"name": "median", "startup": 1}])
def test_a_pruner_does_not_end_a_trial_with_another_seed(pruner: Any) -> None:
    sweep = made(trials=6, pruner=pruner)
    for _ in range(6):
        run(sweep, [0.5, 0.6, 0.7, 0.8])
    # Another trial with these values would be pruned.
    longer = made(trials=7, pruner=pruner)
    for _ in range(6):
        run(longer, [0.5, 0.6, 0.7, 0.8])
    assert run(longer, [0.1, 0.1, 0.1, 0.1]).state == "pruned"
    proposal = sweep.train_again()
    assert proposal is not None
    suspected = [sweep.report(proposal.number, epoch, 0.1, SUSPECTED) for epoch in (1, 2, 3, 4)]
    assert suspected == [None] * 4
    broken = sweep.report(proposal.number, 5, float("nan"))
    assert broken is not None
    assert broken.fault == "nonfinite"


def test_without_a_finished_trial_nothing_trains_again() -> None:
    sweep = made(trials=1)
    sweep.tell(begin(sweep).number, TrialEnd("failed", "a typo"))
    assert sweep.train_again() is None


def test_a_failed_one_is_not_retried_as_a_trial() -> None:
    sweep = made(trials=1)
    run(sweep, [0.5])
    proposal = sweep.train_again()
    assert proposal is not None
    sweep.tell(proposal.number, TrialEnd("failed", "a typo"))
    assert sweep.retry_failed() == 0
    assert results_again(sweep.trials(), sweep.best()) == []
    # The command does not offer to try it again.
    trials = tuple(sweep.trials())
    assert trials[1].ending.state == "failed"
    swept = SweepResult("s", Path("runs/s"), trials, (), {}, "", "", (), "")
    assert swept.failed == 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"again": [1, 1]}, r"again: must be different seeds, not \[1, 1\]"),
        ({"again": ["x"]}, "again"),
        (
            {"metric": "", "objectives": [{"metric": m, "direction": "minimize"} for m in "ab"]},
            "again: not supported with several objectives",
        ),
    ],
)
def test_invalid_seeds_are_named(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        made(**more)
