"""A study continues from its journal."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.samplers import RandomSampler
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, TrialState

from tests.paths import ROOT
from tests.sweeps.studies import FINISHED, begin, run, study
from vinedresser.errors import CorruptData, StillRunning
from vinedresser.sweeps.journal import SweepJournal, SweepStorage
from vinedresser.sweeps.trial import Proposal

SCRIPT = """
import os, signal, sys
from pathlib import Path
from tests.sweeps.test_study import begin, run, study
sweep = study(Path(sys.argv[1]))
for value in (0.5, 0.9):
    run(sweep, [value])
number = begin(sweep).number
sweep.report(number, 1, 0.95)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.thorough
def test_a_killed_study_goes_on_where_it_was(tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    killed = subprocess.run([sys.executable, "-c", SCRIPT, str(journal)], check=False, cwd=ROOT)
    assert killed.returncode == -9
    with journal.open("ab") as file:
        file.write(b'{"op_code": 4, "tri')  # and a kill in the middle of a line
    sweep = study(journal)
    assert [trial.ending.state for trial in sweep.trials()] == ["finished", "finished", "running"]
    [left] = sweep.again()
    assert left == Proposal(2, sweep.trial(2).parameters)
    # Reported values are known and are not reported again.
    assert sweep.report(2, 1, 0.0) is None
    assert sweep.trial(2).values == {1: 0.95}
    sweep.tell(2, FINISHED, [0.97])
    assert begin(sweep).number == 3
    sweep.close()
    assert study(journal).best()[0].result == (0.97,)


def test_two_processes_cannot_run_one_sweep(tmp_path: Path) -> None:
    held = study(tmp_path / "journal.log")
    with pytest.raises(StillRunning, match="another process is running this sweep"):
        study(tmp_path / "journal.log")
    held.close()
    study(tmp_path / "journal.log").close()


@pytest.mark.parametrize("line", ["nonsense", "[]", "0", "{}", '{"op_code": [], "worker_id": ""}'])
def test_a_damaged_journal_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    journal = tmp_path / "journal.log"
    study(journal).close()
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], f"{line}\n".encode(), *lines[1:]]))
    with pytest.raises(CorruptData, match=r"journal.log: line 2 is not an entry of a journal: "):
        study(journal)


def test_the_journal_is_one_of_optuna(tmp_path: Path) -> None:
    from optuna import load_study
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    sweep = study(tmp_path / "journal.log")
    run(sweep, [0.5, 0.6])
    sweep.close()
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
    other = load_study(study_name="sweep", storage=storage)
    assert other.trials[0].intermediate_values == {1: 0.5, 2: 0.6}
    assert other.best_value == 0.6


def test_the_storage_lists_the_trials_that_optuna_lists(tmp_path: Path) -> None:
    journal = SweepJournal(tmp_path / "journal.log")
    storage = SweepStorage(journal)
    one = optuna.create_study(storage=storage, study_name="s", sampler=RandomSampler(seed=0))
    draw = random.Random(0)
    running = []
    selections = (None, (TrialState.WAITING,), (TrialState.COMPLETE, TrialState.PRUNED), ())

    def listed(by: JournalStorage) -> list[list[FrozenTrial]]:
        [study] = by.get_all_studies()
        return [by.get_all_trials(study._study_id, False, states) for states in selections]

    for number in range(60):
        # The last one is waiting in the end.
        action = (
            "enqueue"
            if number == 59
            else draw.choice(("ask", "ask", "enqueue", "tell", "tell", "report"))
        )
        if action == "ask":
            running.append(one.ask())
            running[-1].suggest_float("x", 0.0, 1.0)
        elif action == "enqueue":
            one.enqueue_trial({"x": draw.random()})
        elif running and action == "report":
            draw.choice(running).report(draw.random(), number)
        elif running:
            trial = running.pop(draw.randrange(len(running)))
            state = draw.choice((TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL))
            one.tell(trial, 1.0 if state is TrialState.COMPLETE else None, state)
        expected = [super(SweepStorage, storage).get_all_trials(0, False, s) for s in selections]
        assert listed(storage) == expected
    assert all(expected[:3])
    journal.close()
    again = SweepJournal(tmp_path / "journal.log")
    assert listed(SweepStorage(again)) == expected
    again.close()
