"""Population-based training, decision by decision, against a slow and obvious second writing."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from tests.sweeps.studies import FINISHED, begin
from vinedresser.errors import ConfigError
from vinedresser.infra.configuration import build
from vinedresser.sweeps.settings import SweepTable
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import Proposal, Trial, TrialEnd, line_of, told_line

SPACE = Space.parse(
    {
        "lr": {"log": [1e-3, 1.0]},
        "layers": {"int": [1, 8]},
        "act": ["relu", "tanh", "gelu"],
        "beta": {"float": [0.0, 0.9], "when": {"act": "gelu"}},
    },
    "space",
)


def made(path: Path | None = None, population: Any = 8, **more: Any) -> Study:
    sampler = {"name": "pbt", "population": population, **more.pop("sampler", {})}
    table = {
        "metric": "accuracy",
        "direction": "maximize",
        "trials": 40,
        "pruner": "none",
        "resume": "from",
        "sampler": sampler,
        **more,
    }
    return Study(build(SweepTable, table, "sweep.toml: sweep"), SPACE, path)


def worth(proposal: Proposal) -> float:
    """Return an accuracy that differs between trials."""
    lr = float(proposal.parameters["lr"])
    return -abs(math.log10(lr) + 2) + proposal.age / 4 + (proposal.number * 7 % 5) / 10


def train(study: Study, trials: int, bad: tuple[int, ...] = ()) -> None:
    """Run trials one after the other; bad ones are stopped by a rule."""
    for _ in range(trials):
        one = begin(study)
        if one.number in bad:
            study.tell(one.number, TrialEnd("stopped", "it diverged", "divergence"))
        else:
            study.tell(one.number, FINISHED, [worth(one)])


def generations(study: Study, population: int = 8) -> list[list[Trial]]:
    trials = study.trials()
    return [trials[first : first + population] for first in range(0, len(trials), population)]


def test_the_worst_quarter_continues_from_the_best_quarter() -> None:
    study = made()
    train(study, 40)
    assert study.ask() is None
    assert study.over == "all trials have begun"
    rounds = generations(study)
    copies = 0
    for before, after in itertools.pairwise(rounds):
        by_value = sorted(range(8), key=lambda member: before[member].result[0])
        for member, trial in enumerate(after):
            assert trial.line is not None
            assert trial.line.member == member
            if member in by_value[:2]:
                copies += 1
                best = [before[one] for one in by_value[-2:]]
                assert trial.line.copied
                assert trial.line.parent in [one.number for one in best]
                assert trial.why == f"copy of trial-{trial.line.parent:04d}"
            else:
                assert trial.line.parent == before[member].number
                assert trial.parameters == before[member].parameters
    assert copies == 2 * 4
    # Its results differ by generation, which no configuration explains.
    assert study.importance() == {}
    (winner,) = study.best()
    ancestors = line_of(winner, study.trials())
    assert [one.line.generation for one in ancestors if one.line] == [*range(len(ancestors))]
    assert told_line(winner, study.trials()).startswith(f"{ancestors[0].name} (lr ")


def test_a_copy_is_perturbed_or_drawn_anew() -> None:
    """Each value is 0.8 or 1.2 of the copied one, its neighbour, or within the space."""
    scaled = drawn = 0
    for seed in range(12):
        study = made(seed=seed)
        train(study, 40)
        trials = study.trials()
        for trial in trials:
            if trial.line is None or not trial.line.copied or trial.line.parent is None:
                continue
            old, new = trials[trial.line.parent].parameters, trial.parameters
            assert SPACE.is_whole(new)
            assert SPACE.point(new, "") == new
            ratio = float(new["lr"]) / float(old["lr"])
            clipped = new["lr"] in (1e-3, 1.0)
            if clipped or any(math.isclose(ratio, factor) for factor in (0.8, 1.2)):
                scaled += 1
            else:
                drawn += 1
    # A quarter is drawn anew: 96 copies, and chance decides.
    assert scaled + drawn == 96
    assert 10 <= drawn <= 40


def test_only_the_named_hyperparameters_change() -> None:
    study = made(sampler={"perturb": ["lr"], "resample": 0.0, "factors": [0.5]})
    train(study, 16)
    trials = study.trials()
    copied = [one for one in trials if one.line and one.line.copied]
    assert len(copied) == 2
    for one in copied:
        assert one.line is not None
        assert one.line.parent is not None
        old = trials[one.line.parent].parameters
        assert one.parameters == {**old, "lr": max(float(old["lr"]) / 2, 1e-3)}


def test_a_member_that_was_stopped_or_failed_is_replaced() -> None:
    study = made(trials=16)
    train(study, 16, bad=(0, 3, 4, 5))
    after = generations(study)[1]
    for member in (0, 3, 4, 5):
        line = after[member].line
        assert line is not None
        assert line.copied
        assert line.parent in (1, 2, 6, 7)
    # With none that is good, all begin anew.
    lost = made(trials=16)
    train(lost, 16, bad=tuple(range(8)))
    first, second = generations(lost)
    assert [one.line and one.line.parent for one in second] == [None] * 8
    assert {str(one.parameters) for one in first}.isdisjoint(str(one.parameters) for one in second)


def test_a_generation_waits_for_the_one_before_and_for_no_order() -> None:
    one, other = made(trials=16), made(trials=16)
    for study, order in ((one, 1), (other, -1)):
        proposals = [begin(study) for _ in range(8)]
        for proposal in proposals[::order]:
            assert study.ask() is None
            assert study.over == ""
            study.tell(proposal.number, FINISHED, [worth(proposal)])
        train(study, 8)
    assert one.trials() == other.trials()


def test_a_killed_sweep_continues_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = made()
    train(whole, 40)
    path = tmp_path / "journal.log"
    # Killed after each number of trials, with one that has begun.
    for done in range(40):
        study = made(path)
        left = study.again()
        if done:
            assert len(left) == 1
        for one in left:
            study.tell(one.number, FINISHED, [worth(one)])
        begin(study)
        study.close()
    study = made(path)
    (last,) = study.again()
    assert last.age == len(line_of(whole.trials()[-1], whole.trials()))
    study.tell(last.number, FINISHED, [worth(last)])
    assert study.trials() == whole.trials()
    study.close()


def test_a_queued_trial_of_a_killed_process_begins_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    study = made(path, trials=8)
    begin(study)
    study.close()
    lines = path.read_bytes().splitlines(keepends=True)
    # Killed between the entry of the queue and that of the beginning.
    (queued,) = [number for number, one in enumerate(lines) if b'"line"' in one]
    path.write_bytes(b"".join(lines[: queued + 1]))
    study = made(path, trials=8)
    train(study, 8)
    assert study.ask() is None
    assert [one.line and one.line.member for one in study.trials()] == list(range(8))
    study.close()


def test_points_are_the_first_members() -> None:
    study = made(points=[{"lr": 0.5}, {"lr": 0.25, "layers": 3}])
    first, second = begin(study), begin(study)
    assert first.parameters["lr"] == 0.5
    assert (second.parameters["lr"], second.parameters["layers"]) == (0.25, 3)
    assert second.parameters.keys() >= {"act"}


def test_an_infeasible_member_is_replaced_and_never_copied() -> None:
    study = made(trials=16, constraints=[{"metric": "latency", "max": 1.0}])
    for _ in range(8):
        one = begin(study)
        study.tell(one.number, FINISHED, [float(one.number)], [2.0 if one.number > 5 else 0.5])
    for _ in range(8):
        line = begin(study).line
        assert line is not None
        assert line.parent is not None
        assert line.parent < 6
        assert line.copied is (line.member > 5)


@pytest.mark.parametrize(
    ("name", "value", "factor", "expected"),
    [
        ("lr", 0.1, 1.2, 0.12),
        ("lr", 0.9, 1.2, 1.0),
        ("layers", 5, 1.2, 6),
        # 2.4 and 1.6 are nearest to 2: the next one instead.
        ("layers", 2, 1.2, 3),
        ("layers", 2, 0.8, 1),
        ("layers", 1, 0.8, 1),
        ("layers", 8, 1.2, 8),
        ("beta", 0.0, 1.2, 0.0),
    ],
)
def test_numbers_are_scaled_within_their_range(
    name: str, value: float, factor: float, expected: float
) -> None:
    (dimension,) = [one for one in SPACE.dimensions if one.name == name]
    found = dimension.scaled(value, factor)
    assert found == pytest.approx(expected)
    assert type(found) is type(value)


def test_steps_and_choices_have_neighbours() -> None:
    space = Space.parse(
        {"drop": {"float": [0.0, 0.5], "step": 0.2}, "act": ["relu", "tanh", "gelu"], "one": [3]},
        "space",
    )
    drop, act, one = space.dimensions
    assert drop.scaled(0.2, 1.2) == pytest.approx(0.4)
    assert drop.scaled(0.4, 1.5) == pytest.approx(0.4)
    assert [act.neighbour("tanh", side) for side in (-1, 1)] == ["relu", "gelu"]
    assert [act.neighbour("gelu", side) for side in (-1, 1)] == ["tanh", "tanh"]
    assert one.neighbour(3, 1) == 3


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"resume": None}, "resume: is missing; pbt needs the script's parameter"),
        ({"pruner": "asha"}, 'pruner: must be "none" with pbt'),
        ({"again": [1]}, "again: not supported with pbt"),
        ({"repeats": 2}, "repeats: not supported with pbt"),
        ({"warm_start": "runs/a"}, "warm_start: pbt does not learn from other sweeps"),
        ({"population": 1}, "sampler.population"),
        ({"sampler": {"quantile": 0.6}}, "sampler.quantile"),
        ({"sampler": {"factors": []}}, "sampler.factors: must have a number"),
        ({"sampler": {"perturb": ["lrr"]}}, "sampler.perturb: 'lrr' is not in the space.* lr"),
        ({"sampler": {"until": "epochs"}}, "epochs: is missing; sampler.until needs"),
        ({"sampler": {"until": "lr"}, "epochs": 2}, "sampler.until: lr is also in the space"),
        ({"sampler": {"until": "from"}, "epochs": 2}, "sampler.until: from is the parameter of sw"),
        ({"population": 2, "points": [{"lr": 0.1}] * 3}, "points"),
        (
            {"metric": "", "objectives": [{"metric": m, "direction": "minimize"} for m in "ab"]},
            "objectives: pbt supports one objective only",
        ),
    ],
)
def test_invalid_settings_are_named(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        made(**more)
