"""What a flow of a sweep waits for, and what it leaves, while another one runs trials."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.sweeps.studies import FINISHED
from vinedresser.store.records import TrackingRecord
from vinedresser.sweeps.study import Study
from vinedresser.tasks.config.sweep_file import load_sweep
from vinedresser.tasks.interruption import INTERRUPTED
from vinedresser.tasks.sweeping.sweep_result import sweep_result
from vinedresser.tasks.sweeping.sweep_runner import SweepRunner

TRACKING = TrackingRecord("", "", "")


@contextmanager
def both(folder: Path, more: str, trials: int) -> Iterator[tuple[SweepRunner, Study, Study]]:
    """Yield the runner of the host of a sweep, its study, and that of another process."""
    (folder / "train.py").touch()
    (folder / "sweep.toml").write_text(
        f"""
        [sweep]
        metric = "accuracy"
        direction = "maximize"
        trials = {trials}
        pruner = "none"
        {more}
        [space]
        x = {{ float = [0.1, 1.0] }}
        [run]
        name = "search"
        command = ["python", "train.py"]
        [rules.nonfinite]
        """,
        encoding="utf-8",
    )
    sweep = load_sweep(folder / "sweep.toml")
    # As `begin_sweep` does; without it the sweep counts as removed.
    sweep.lock.parent.mkdir(parents=True)
    (sweep.lock.parent / "sweep.json").touch()
    with (
        closing(sweep.study(sweep.lock)) as study,
        closing(sweep.study(sweep.lock, join=True)) as other,
    ):
        yield SweepRunner(sweep, {}, study, TRACKING, flow=""), study, other


def begin_in_turn(study: Study) -> int:
    with study.turn():
        proposal = study.ask()
    assert proposal is not None
    return proposal.number


def end(study: Study, number: int) -> None:
    with study.turn():
        study.tell(number, FINISHED, [0.5])


@pytest.mark.parametrize(
    ("more", "trials"),
    [
        ("again = [7]", 2),
        ('resume = "from"\nsampler = { name = "pbt", population = 2 }', 4),
    ],
)
def test_the_trial_of_another_flow_that_ends_meanwhile_may_bring_the_next(
    tmp_path: Path, more: str, trials: int
) -> None:
    with both(tmp_path, more, trials) as (runner, study, other):
        first = runner.next()
        assert first is not None
        number = begin_in_turn(other)
        end(study, first.number)
        # It depends on that of the other one.
        assert runner.next() is None
        end(other, number)
        assert runner.await_others()
        following = runner.next()
        assert following is not None
        assert following.number == 2


def test_an_interrupted_host_leaves_the_report_to_a_flow_that_lives(tmp_path: Path) -> None:
    with both(tmp_path, "", 2) as (runner, study, other):
        begin_in_turn(other)
        INTERRUPTED.number = signal.SIGINT
        INTERRUPTED.set()
        try:
            assert runner.next() is None
            assert not runner.await_others()
            assert sweep_result(runner, study, TRACKING, ()).left
            other.close()
            assert not sweep_result(runner, study, TRACKING, ()).left
        finally:
            INTERRUPTED.clear()
