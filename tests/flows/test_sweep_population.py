"""A population for real: its trials continue from checkpoints of others, also after a kill."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import vinedresser
from tests.flows.test_sweep_flow import start, sweep
from tests.waiting import until
from vinedresser.store.reading.reader import open_run
from vinedresser.sweeps.study import Study
from vinedresser.sweeps.trial import Trial, TrialEnd, line_of
from vinedresser.tasks.config.sweep_file import load_sweep

SCRIPT = Path(__file__).with_name("population_trainer.py")

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("shared_prefect")]

SWEEP = f"""
[sweep]
metric = "accuracy"
direction = "maximize"
trials = {{trials}}
epochs = 2
pruner = "none"
resume = "from"
retries = 0
sampler = {{{{ name = "pbt", population = 4, until = "epochs" }}}}

[space]
x = {{{{ float = [0.1, 1.0] }}}}

[run]
name = "search"
command = ["python", "{SCRIPT}"]
total_steps = 6
max_concurrent = 2
parameters = {{{{ {{parameters}} }}}}

[rules.nonfinite]
"""


def write(folder: Path, trials: int, parameters: str) -> None:
    """Write a sweep file."""
    text = SWEEP.format(trials=trials, parameters=parameters)
    (folder / "sweep.toml").write_text(text, encoding="utf-8")


def expected(folder: Path, failed: int | None = None) -> list[Trial]:
    """Return the trials as a study decides that no process runs."""
    study: Study = load_sweep(folder / "sweep.toml").study()
    scores: dict[int, float] = {}
    while (one := study.ask()) is not None:
        assert one.line is not None
        before = 0.0 if one.line.parent is None else scores[one.line.parent]
        if one.number == failed:
            study.tell(one.number, TrialEnd("failed", "it crashes"))
            continue
        x = float(one.parameters["x"])
        study.report(one.number, 1, before + x)
        study.report(one.number, 2, before + x + x)
        scores[one.number] = before + x + x
        study.tell(one.number, TrialEnd("finished"), [scores[one.number]])
    return study.trials()


def trained(store: Path, trial: Trial) -> dict[str, Any]:
    """Return what the checkpoint of a trial's last run has."""
    run = max(store.glob(f"{trial.name}*"), key=lambda path: len(path.name))
    (path,) = run.glob("checkpoints/step-*.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.thorough
def test_a_failed_member_is_replaced_by_a_copy_of_a_good_one(
    tmp_path: Path, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    write(tmp_path, 12, "broken = 'trial-0001'")
    code, output = sweep(tmp_path)
    assert code == 0, output
    store, trials = tmp_path / "runs" / "search", expected(tmp_path, failed=1)
    runs = mlflow_runs(tmp_path / "runs")
    for trial in (one for one in trials if one.result):
        line = line_of(trial, trials)
        state = trained(store, trial)
        assert state["runs"] == [one.name for one in line]
        assert state["score"] == trial.result[0]
        assert open_run(store / trial.name).info.parameters["epochs"] == 2 * len(line)
        assert trial.line is not None
        tags = runs[trial.name]["tags"]
        assert tags["sweep.member"] == str(trial.line.member)
        assert tags.get("sweep.parent") == (line[-2].name if len(line) > 1 else None)
    replaced = trials[5]
    assert replaced.line is not None
    assert replaced.line.copied
    assert f"copy of trial-{replaced.line.parent:04d}" in output
    assert "--retry-failed" not in output
    best = max(trials, key=lambda one: one.result)
    names = [one.name for one in line_of(best, trials)]
    assert runs["search"]["tags"]["sweep.best.line"] == " ".join(names)
    assert f"line             {names[0]} (x " in output
    page = (store / "sweep.html").read_text(encoding="utf-8")
    assert f"its line: {names[0]} (x " in page
    # Copies are gone, and the checkpoints of the trials are not.
    assert not [*(store / "fetched").rglob("step-*")]
    for words, said in (
        (["enqueue", "runs/search", "x=0.5"], "its configurations come from its population"),
        (["sweep", "sweep.toml", "--retry-failed"], "--retry-failed: not supported with pbt"),
    ):
        done = vinedresser(*words, cwd=tmp_path, columns=200)
        assert done.returncode == 2
        assert said in done.stdout + done.stderr
    write(tmp_path, 12, "broken = 'trial-0001'")
    path = tmp_path / "sweep.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("population = 4", "population = 3"), encoding="utf-8")
    code, output = sweep(tmp_path, "--resume")
    assert code == 2
    assert "population: was 4, is 3" in output


@pytest.mark.slow
@pytest.mark.parametrize("begun", [2, 6, 11])
def test_a_killed_population_continues_and_repeats_nothing(tmp_path: Path, begun: int) -> None:
    write(tmp_path, 12, "pause = 0.2")
    store = tmp_path / "runs" / "search"
    flow = start(tmp_path)
    until(lambda: len(list(store.glob("trial-????/index"))) > begun)
    flow.send_signal(signal.SIGKILL)
    flow.communicate()
    done = {path.parent.name for path in store.glob("trial-*/exit.json")}
    finished = [name for name in done if open_run(store / name).status.state == "finished"]
    code, output = sweep(tmp_path, "--resume")
    assert code == 0, output
    trials = expected(tmp_path)
    assert len(trials) == 12
    for trial in trials:
        assert trained(store, trial)["score"] == trial.result[0]
        assert f"{trial.name}  " in output
    for name in finished:
        assert not (store / f"{name}-2").exists(), "it was over"


@pytest.mark.thorough
def test_trials_without_a_checkpoint_end_the_sweep(tmp_path: Path) -> None:
    write(tmp_path, 12, "")
    script = SCRIPT.read_text(encoding="utf-8").replace('f"step-{steps}.json"', '"mine.json"')
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    path = tmp_path / "sweep.toml"
    text = path.read_text(encoding="utf-8").replace(str(SCRIPT), "train.py")
    path.write_text(text, encoding="utf-8")
    code, output = sweep(tmp_path)
    assert code == 1
    assert "the first 3 trials all failed: it saved no complete checkpoint" in output
