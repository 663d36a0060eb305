"""Expectations and good runs in experiment files and of `vinedresser run`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.rules.stated.points import train
from tests.warm_python import COMMANDS
from vinedresser.errors import ConfigError
from vinedresser.rules.stated.good_runs import GoodRuns
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.tasks.config.experiment import load_experiment
from vinedresser.tasks.config.references import good_runs_for

RUN = '[run]\nname = "a"\ncommand = ["python", "train.py"]\n'
SCRIPT = """
import sys
from tests.rules.stated.points import train
train("unused", seed=int(sys.argv[2]), rate=float(sys.argv[4]))
"""


def experiment(folder: Path, text: str, *, rules: str = "") -> Path:
    (folder / "train.py").write_text("", encoding="utf-8")
    path = folder / "experiment.toml"
    path.write_text(f"{RUN}{text}{rules}", encoding="utf-8")
    return path


def test_an_experiment_states_what_it_expects(tmp_path: Path) -> None:
    lines = '[expect]\nlines = ["norm(gradients) < 100", "encoder trained"]\n'
    loaded = load_experiment(experiment(tmp_path, lines, rules='[rules]\npreset = "none"\n'))
    assert loaded.expectations == ("norm(gradients) < 100", "encoder trained")
    # What judges it, and what it reads.
    assert loaded.rules == {"default": {"expectation": {}}}
    assert {"gradients", "weights", "biases"} <= set(loaded.needs.collections)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[expect]\nlines = ["loss falls", "loss is low"]\n',
            r"expect.lines: line 2: .*loss is low",
        ),
        ('[expect]\nline = ["loss falls"]\n', r"expect.line: no such key.*lines"),
        ('[reference]\nrun = ["auto", "runs/a"]\n', r'reference.run: "auto" stands alone'),
        ('[reference]\nruns = "auto"\n', r"reference.runs: no such key.*run"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_experiment(experiment(tmp_path, text))


def test_a_good_run_that_does_not_exist_is_refused_before_the_start(tmp_path: Path) -> None:
    loaded = load_experiment(experiment(tmp_path, '[reference]\nrun = "runs/none"\n'))
    with pytest.raises(ConfigError, match=r"reference.run: .*runs/none: no such run"):
        loaded.refuse_missing()


def good_runs(given: Path, command: list[str]) -> GoodRuns | None:
    return good_runs_for([str(given)], given.parent, command, {}, where="reference")


def test_a_run_of_another_script_is_refused(tmp_path: Path) -> None:
    run = train(tmp_path / "run", epochs=1)
    command = open_run(run).info.command
    kept = good_runs(run, command)
    assert kept is not None
    assert kept.runs == ["run"]
    with pytest.raises(ConfigError, match=r"is a run of .*, not of other"):
        good_runs(run, ["python", "other.py"])


def test_a_run_that_crashed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"could not broadcast|shapes"):
        train(tmp_path / "run", rate=[0.1, 0.2, 0.3])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is no good run: crashed"):
        good_runs(tmp_path / "run", open_run(tmp_path / "run").info.command)


@pytest.mark.thorough
def test_the_last_good_runs_are_found_and_an_expectation_stops(tmp_path: Path) -> None:
    (tmp_path / "points.py").write_text(SCRIPT, encoding="utf-8")

    def run(name: str, seed: int, rate: str, *options: str) -> int:
        command = ["-m", "vinedresser", "run", "--name", name, *options]
        command += ["points.py", "--seed", str(seed), "--rate", rate]
        return COMMANDS.run(command, tmp_path, os.environ | {"PYTHONPATH": str(ROOT)}).returncode

    def finding(name: str) -> Finding:
        found = open_run(tmp_path / "runs" / name).findings()
        (one,) = (one for one in found if one.rule == "reference")
        return one

    good = [f"good-{seed}" for seed in (1, 2, 3)]
    assert [run(name, seed, "0.5") for seed, name in enumerate(good, 1)] == [0, 0, 0]
    # Another configuration is no reference of this one.
    assert run("other", 1, "0.4") == 0
    assert run("like", 8, "0.5", "--reference", "auto") == 0
    assert (finding("like").severity, finding("like").evidence["runs"]) == ("info", good)
    assert open_run(tmp_path / "runs/like").info.references == good
    # Whoever chose them can choose others.
    assert open_run(tmp_path / "runs/like").info.named_references == []
    options = [f"--reference=runs/{name}" for name in good]
    options += ["--expect", "accuracy > 0.999 by epoch 4, else stop"]
    # It may end before it is stopped.
    assert run("bad", 9, "0.0001", *options) in (0, 3)
    ids = [open_run(tmp_path / "runs" / name).info.id for name in good]
    assert open_run(tmp_path / "runs/bad").info.named_references == ids
    assert finding("bad").severity == "warning"
    assert finding("bad").evidence["differs"] == {"rate": [0.5, 0.0001]}
    (one,) = (one for one in open_run(tmp_path / "runs/bad").findings() if one.severity == "stop")
    assert (one.rule, one.step) == ("expectation", 200)
