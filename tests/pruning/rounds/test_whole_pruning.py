"""All rounds of a pruning in one run, in this process."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.pruning.rounds import functions
from tests.pruning.rounds.test_round_run import MODULE, TABLE
from vinedresser import open_run
from vinedresser.objects import LocalStorage
from vinedresser.pruning import load
from vinedresser.pruning.folders import PRUNED, TUNED, ResultRecord, round_folder
from vinedresser.pruning.rounds.round_run import FOLDER
from vinedresser.pruning.rounds.whole_pruning import main
from vinedresser.store.records import (
    RUN_ID_VARIABLE,
    RUN_VARIABLE,
    new_run,
    read_record,
    write_record,
)


@pytest.fixture
def prune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that executes a pruning in a run, and returns its figures by step."""

    def execute(name: str = "trial", **changes: Any) -> list[tuple[int, float]]:
        run = new_run(name, {})
        write_record(LocalStorage(tmp_path / name), run)
        monkeypatch.setenv(RUN_VARIABLE, str(tmp_path / name))
        monkeypatch.setenv(RUN_ID_VARIABLE, run.id)
        settings = dataclasses.replace(TABLE, **changes).to_parameters()
        main(**settings, **{FOLDER: str(tmp_path / "models"), "lr": 0.02})
        found = open_run(tmp_path / name).scalars("metrics", mode="eval")
        column = found["metrics/pruning/figure"]
        return list(zip(column.steps.tolist(), column.values.tolist(), strict=True))

    return execute


def saved(folder: Path) -> set[str]:
    """Return the models that are on disk, as ``round/which``."""
    return {
        f"{number}/{which}"
        for number in range(9)
        for which in (PRUNED, TUNED)
        if (round_folder(folder, number) / which).exists()
    }


@pytest.mark.thorough
def test_rounds_are_epochs_and_train_in_runs_of_their_own(prune: Any, tmp_path: Path) -> None:
    assert prune(rounds=2) == [(1, 20 / 24), (2, 16 / 24)]
    assert open_run(tmp_path / "trial").steps("train").size == 0
    rounds = [open_run(tmp_path / f"trial.{number}") for number in (2, 3, 4)]
    assert [one.steps("train").size for one in rounds] == [0, 5, 5]
    assert not (tmp_path / "trial.5").exists()
    assert sum(functions.filters(load(tmp_path / "models", functions.network))) == 16
    assert saved(tmp_path / "models") == {"2/pruned", "2/tuned"}


@pytest.mark.thorough
def test_the_last_values_are_those_of_the_result(prune: Any, tmp_path: Path) -> None:
    figures = prune(rounds=5, max_drop=0.2)
    assert [figure for _, figure in figures] == [20 / 24, 16 / 24, 20 / 24]
    result = read_record(LocalStorage(tmp_path / "models"), ResultRecord)
    assert result is not None
    assert result.round == 1
    # A complete pruning is reported again and not repeated.
    assert prune("trial-2", rounds=5, max_drop=0.2) == figures
    assert not (tmp_path / "trial-2.2").exists()
    assert saved(tmp_path / "models") == {"1/pruned", "1/tuned"}


@pytest.mark.thorough
def test_it_ends_when_the_limits_allow_no_further_round(
    prune: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert prune(rounds=5, amount=[9, 9]) == [(1, 15 / 24), (2, 6 / 24)]
    assert "no round 3: " in caplog.text
    assert saved(tmp_path / "models") == {"2/pruned", "2/tuned"}


@pytest.mark.thorough
def test_a_round_whose_fine_tuning_fails_does_not_end_it_as_if_nothing_was_left(
    prune: Any, tmp_path: Path
) -> None:
    script = "test -e mark && exit; touch mark; cp -r $VINEDRESSER_ROUND/pruned "
    command = ["sh", "-c", f"cd {tmp_path}; {script} $VINEDRESSER_ROUND/tuning"]
    with pytest.raises(SystemExit, match=r"vinedresser: sh -c .* ended without a saved model"):
        prune(rounds=3, train=command)
    assert saved(tmp_path / "models") >= {"1/tuned", "2/pruned"}


@pytest.mark.thorough
def test_a_pruning_that_cannot_begin_says_why(prune: Any) -> None:
    with pytest.raises(SystemExit, match=r"vinedresser: .*the limits allow 22 of 24"):
        prune(amount=23)
    with pytest.raises(SystemExit, match="has no function trian; did you mean train"):
        prune("other", train=f"{MODULE}:trian")
