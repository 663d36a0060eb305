"""A rule of one's own beside an experiment file judges its trainings, wherever one stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vinedresser.capture import open_run
from vinedresser.errors import ConfigError
from vinedresser.tasks.config.experiment import load_experiment

EXPERIMENT = """
[run]
name = "tiny"
command = ["python", "train.py"]
total_steps = 2000

[rules]
preset = "none"

[rules."rules/mine.py:Enough"]
limit = 40.0
"""

TRAIN = """
import time
from vinedresser.capture import Hook

with Hook() as hook:
    # It would go on for minutes; a step raises when it is to end.
    for step in range(2000):
        hook.step(loss=float(step))
        time.sleep(0.05)
"""

MINE = '''
from vinedresser.capture import Finding, Step
from vinedresser.rules import Need, Rule


class Enough(Rule):
    """A loss lies above a limit."""

    def __init__(self, limit: float = 2.0) -> None:
        self.limit = limit
        self.needs = (Need("losses"),)

    def update(self, step: Step) -> Finding | None:
        value = max(step.scalars_of("losses").values(), default=0.0)
        if value < self.limit:
            return None
        return self.found(
            step, since=step.step, tensor="losses/loss", statistic="loss", value=value,
            threshold=self.limit, confidence=1.0, seen=f"enough: {value:g}", cause="c", remedy="r",
            evidence={},
        )
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "experiment"
    (folder / "rules").mkdir(parents=True)
    (folder / "experiment.toml").write_text(EXPERIMENT, encoding="utf-8")
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    (folder / "rules" / "mine.py").write_text(MINE, encoding="utf-8")
    return folder


def test_the_path_is_relative_to_the_experiment_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    experiment = load_experiment(folder / "experiment.toml")
    assert experiment.rules == {
        "default": {f"{folder / 'rules' / 'mine.py'}:Enough": {"limit": 40.0}}
    }
    assert "losses" in experiment.needs.collections


def test_a_file_that_is_not_there_is_refused_before_anything_starts(folder: Path) -> None:
    (folder / "rules" / "mine.py").unlink()
    with pytest.raises(ConfigError, match=r"experiment\.toml: rules\..*mine\.py: no such file"):
        load_experiment(folder / "experiment.toml")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("shared_prefect")
def test_it_stops_a_training_that_was_started_from_elsewhere(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "vinedresser", "train", str(folder / "experiment.toml")],
        cwd=elsewhere,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = open_run(folder / "runs" / "tiny")
    assert run.status.state == "stopped"
    finding = run.findings()[0]
    assert (finding.rule, finding.step, finding.seen) == ("enough", 40, "enough: 40")
