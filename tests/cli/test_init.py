"""`vinedresser init`: its examples run unchanged, and it overwrites no files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import vinedresser
from tests.rules.stated.points import train
from vinedresser.store.reading.reader import open_run
from vinedresser.tasks.config.experiment import load_experiment
from vinedresser.tasks.config.sweep_file import load_sweep

pytestmark = pytest.mark.timeout(300)


@pytest.mark.thorough
@pytest.mark.usefixtures("shared_prefect")
def test_the_example_experiment_runs_unchanged(
    tmp_path: Path, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    done = vinedresser("init", "experiment", cwd=tmp_path)
    written = "wrote experiment.toml\nwrote train.py\n"
    assert done.stdout == f"{written}next: vinedresser train experiment.toml\n"
    done = vinedresser("train", "experiment.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    good = open_run(tmp_path / "runs/spirals-good")
    assert good.status.state == "finished"
    assert good.scalars("metrics", mode="eval")["metrics/accuracy"].values[-1] > 0.95
    assert open_run(tmp_path / "runs/spirals-too-fast").status.rule == "learning_rate_too_high"
    recorded = mlflow_runs(tmp_path / "runs")
    assert {name: entry["status"] for name, entry in recorded.items()} == {
        "spirals-good": "FINISHED",
        "spirals-too-fast": "KILLED",
    }
    assert recorded["spirals-too-fast"]["tags"]["stop.rule"] == "learning_rate_too_high"
    assert "report.html" in recorded["spirals-good"]["files"]


@pytest.mark.slow
def test_the_example_sweep_runs_unchanged(tmp_path: Path) -> None:
    done = vinedresser("init", "sweep", "a/b", cwd=tmp_path)
    written = "wrote a/b/sweep.toml\nwrote a/b/train.py\n"
    assert done.stdout == f"{written}next: vinedresser sweep a/b/sweep.toml\n"
    done = vinedresser("sweep", "a/b/sweep.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    trials = sorted((tmp_path / "a/b/runs/spirals-sweep").glob("trial-*"))
    states = {open_run(trial).status.state for trial in trials}
    assert len(trials) == 12
    assert "finished" in states
    assert states <= {"finished", "stopped"}


@pytest.mark.slow
def test_the_example_pruning_runs_unchanged(tmp_path: Path) -> None:
    done = vinedresser("init", "prune", cwd=tmp_path)
    written = "wrote prune.toml\nwrote pruning.py\n"
    assert done.stdout == f"{written}next: vinedresser prune prune.toml\n"
    done = vinedresser("prune", "prune.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ended            target_reached: " in done.stdout
    assert (tmp_path / "runs" / "digits-pruning" / "pruning.html").exists()


@pytest.mark.thorough
def test_existing_files_are_kept(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("mine", encoding="utf-8")
    assert vinedresser("init", "sweep", cwd=tmp_path).returncode == 0
    assert (tmp_path / "train.py").read_text(encoding="utf-8") == "mine"
    (tmp_path / "sweep.toml").write_text("mine too", encoding="utf-8")
    again = vinedresser("init", "sweep", cwd=tmp_path)
    assert again.returncode == 2
    assert again.stderr == "vinedresser: sweep.toml: already exists; choose another folder\n"
    assert (tmp_path / "sweep.toml").read_text(encoding="utf-8") == "mine too"


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    done = vinedresser("init", "experiment", "taken", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "vinedresser: taken: cannot be written: File exists\n"


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "load"), [("experiment", load_experiment), ("sweep", load_sweep)])
def test_commented_settings_are_valid(
    tmp_path: Path, kind: str, load: Callable[[Path], object]
) -> None:
    assert vinedresser("init", kind, cwd=tmp_path).returncode == 0
    file = tmp_path / f"{kind}.toml"
    proposed = re.compile(r"^# (?=\w+ = |\[)", re.MULTILINE)
    text, count = proposed.subn("", file.read_text(encoding="utf-8"))
    assert count >= 4
    file.write_text(text, encoding="utf-8")
    load(file)


def test_a_script_of_the_user_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('mine')\n")
    done = vinedresser("init", "sweep", cwd=tmp_path)
    assert "left train.py as it is: make sweep.toml fit it\n" in done.stdout
    assert (tmp_path / "train.py").read_text() == "print('mine')\n"


@pytest.mark.thorough
def test_expectations_are_toml_also_if_log_lines_are_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "good", seed=1)
    monkeypatch.setenv("VINEDRESSER_LOG_FORMAT", "json")
    done = vinedresser("init", "expect", "good", cwd=tmp_path)
    assert "train/loss falls" in tomllib.loads(done.stdout)["expect"]["lines"]
