"""`vinedresser sweep` for real: Prefect, MLflow, supervised trials, and a flow that is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import started_vinedresser, vinedresser
from tests.flows.changing_files import invalid_once_read
from tests.waiting import until
from tests.warm_python import COMMANDS
from vinedresser.store.reading.reader import open_run

SCRIPT = Path(__file__).with_name("sweep_trainer.py")

MakeStore = Callable[[Path], Path]

SWEEP = f"""
[sweep]
metric = "accuracy"
direction = "maximize"
epochs = 4
pruner = "none"
sampler = "grid"
{{more}}

[space]
{{space}}

[run]
name = "search"
command = ["python", "{SCRIPT}"]
total_steps = 20
max_concurrent = 2
parameters = {{{{ epochs = 4, {{parameters}} }}}}

[rules.nonfinite]
"""

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("shared_prefect")]


def write(folder: Path, space: str, *, more: str = "", parameters: str = "pause = 0.0") -> None:
    """Write a sweep file."""
    text = SWEEP.format(space=space, more=more, parameters=parameters)
    (folder / "sweep.toml").write_text(text, encoding="utf-8")


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a sweep."""
    return started_vinedresser("sweep", "sweep.toml", *arguments, cwd=folder)


def sweep(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run a sweep; return its exit code and what it printed."""
    done = vinedresser("sweep", "sweep.toml", *arguments, cwd=folder, columns=200)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.thorough
def test_each_trial_has_its_end_and_none_ends_the_sweep(
    tmp_path: Path, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    kinds = '["good", "crash", "killed-once", "nan"]'
    write(tmp_path, f"x = [0.5, 0.9]\nkind = {kinds}", more="seeds = [3]")
    with invalid_once_read(tmp_path / "sweep.toml"):
        code, output = sweep(tmp_path)
    assert code == 0, output
    assert "best             trial-0004: accuracy 0.9 with x 0.9, kind good" in output
    assert "4 finished" in output
    assert "2 failed" in output
    assert "2 stopped" in output
    runs = mlflow_runs(tmp_path / "runs")
    parent = runs["search"]
    assert parent["status"] == "FINISHED"
    assert parent["tags"]["sweep.best"] == "trial-0004"
    assert parent["tags"]["verdict"] == "4 finished, 2 failed, 2 stopped; best trial-0004"
    assert parent["metrics"]["sweep/best_accuracy"] == 0.9
    page = (tmp_path / "runs" / "search" / "sweep.html").read_text(encoding="utf-8")
    # The last run of a trial that began again.
    assert 'href="trial-0002-2/report.html">trial-0002</a>' in page
    best = runs["trial-0004"]["metrics"]
    assert parent["metrics"]["eval/accuracy"] == best["eval/accuracy"] == 0.9
    children = {name: one for name, one in runs.items() if name != "search"}
    # Two that crashed and two that were killed were begun again.
    assert len(children) == 8 + 4
    assert {child["tags"]["mlflow.parentRunId"] for child in children.values()} == {parent["id"]}
    assert {child["tags"]["parent"] for child in children.values()} == {"search"}
    assert {child["params"]["seed"] for child in children.values()} == {"3"}
    ends = {name: one["status"] for name, one in children.items()}
    assert ends["trial-0000"] == "FINISHED"
    assert "[report](#/experiments/" in children["trial-0000"]["tags"]["mlflow.note.content"]
    assert ends["trial-0001"] == ends["trial-0001-2"] == "FAILED"
    assert (ends["trial-0002"], ends["trial-0002-2"]) == ("KILLED", "FINISHED")
    assert children["trial-0003"]["tags"]["stop.by"] == "sweep"
    assert "accuracy is nan at epoch 2" in children["trial-0003"]["tags"]["stop.reason"]


@pytest.mark.slow
def test_a_sweep_that_was_killed_or_interrupted_goes_on_and_repeats_nothing(
    tmp_path: Path, mlflow_store: MakeStore, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    mlflow_store(tmp_path / "runs")
    write(tmp_path, "x = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]", parameters="pause = 0.5")
    store = tmp_path / "runs" / "search"
    flow = start(tmp_path)
    until(lambda: len(list(store.glob("trial-*/exit.json"))) >= 2)
    flow.send_signal(signal.SIGKILL)
    flow.communicate()
    # Those that ran when it was killed end without it, with their owner.
    ended = [path.parent for path in store.glob("trial-*/exit.json")]
    finished = [path.name for path in ended if open_run(path).status.state == "finished"]
    assert len(finished) >= 2
    code, output = sweep(tmp_path)
    assert code == 2
    assert "already holds this sweep; resume it with --resume" in output
    write(tmp_path, "x = [0.1, 0.2, 0.3, 0.4, 0.5, 0.7]", parameters="pause = 0.5")
    code, output = sweep(tmp_path, "--resume")
    assert code == 2
    assert "space.x: was" in output
    assert "0.6" in output
    write(tmp_path, "x = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]", parameters="pause = 0.5")
    known = len(list(store.glob("trial-*")))
    flow = start(tmp_path, "--resume")
    until(lambda: len(list(store.glob("trial-*/index"))) > known)
    flow.send_signal(signal.SIGINT)
    output, _ = flow.communicate()
    assert "ended            interrupted at the keyboard" in output
    tags = mlflow_runs(tmp_path / "runs")["search"]["tags"]
    assert tags["sweep.running"] == "0"
    assert tags["sweep.interrupted"] == str(output.count("--resume continues it"))
    assert int(tags["sweep.interrupted"]) > 0
    code, output = sweep(tmp_path, "--resume")
    assert code == 0, output
    assert "best             trial-0005: accuracy 0.6 with x 0.6" in output
    assert "trials           6 finished" in output
    tags = mlflow_runs(tmp_path / "runs")["search"]["tags"]
    ends = {name: tags[f"sweep.{name}"] for name in ("finished", "running", "interrupted")}
    assert ends == {"finished": "6", "running": "0", "interrupted": "0"}
    for name in finished:
        assert not (store / f"{name}-2").exists(), "it was over"
    done = [open_run(path) for path in store.glob("trial-*") if path.is_dir()]
    xs = sorted(run.info.parameters["x"] for run in done if run.status.state == "finished")
    assert xs == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


def configurations(store: Path) -> list[dict[str, Any]]:
    """Return the parameters of the trials in the order of their numbers."""
    return [open_run(path).info.parameters for path in sorted(store.glob("trial-????"))]


@pytest.mark.slow
def test_a_sweep_killed_and_then_made_longer_tries_what_it_tries_in_one_go(
    tmp_path: Path, mlflow_store: MakeStore
) -> None:
    def wanted(folder: Path, trials: int) -> Path:
        folder.mkdir(exist_ok=True)
        write(
            folder, "x = { float = [0.0, 1.0] }\nkind = ['good', 'odd']", parameters="pause = 0.3"
        )
        path = folder / "sweep.toml"
        text = path.read_text(encoding="utf-8").replace("max_concurrent = 2", "max_concurrent = 1")
        sampler = f'{{ name = "tpe", startup = 2 }}\ntrials = {trials}'
        path.write_text(text.replace('"grid"', sampler), encoding="utf-8")
        return folder / "runs" / "search"

    mlflow_store(tmp_path / "whole" / "runs")
    whole = wanted(tmp_path / "whole", 5)
    assert sweep(tmp_path / "whole")[0] == 0
    mlflow_store(tmp_path / "parts" / "runs")
    parts = wanted(tmp_path / "parts", 3)
    flow = start(tmp_path / "parts")
    until((parts / "trial-0002" / "run.json").exists)
    flow.kill()
    flow.communicate()
    wanted(tmp_path / "parts", 5)
    code, output = sweep(tmp_path / "parts", "--resume")
    assert code == 0, output
    assert "trials           5 finished" in output
    expected = configurations(whole)
    assert configurations(parts) == expected
    assert len({one["x"] for one in expected}) == 5


@pytest.mark.thorough
def test_failed_trials_and_new_points_are_tried_when_the_script_is_mended(
    tmp_path: Path, mlflow_store: MakeStore, mlflow_runs: Callable[[Path], dict[str, Any]]
) -> None:
    mlflow_store(tmp_path / "runs")
    script = SCRIPT.read_text(encoding="utf-8")
    fault = '    if given.x > 0.4:\n        sys.exit("a typo")\n    draw ='
    (tmp_path / "train.py").write_text(script.replace("    draw =", fault, 1), encoding="utf-8")
    write(tmp_path, "x = [0.1, 0.2, 0.5, 0.6, 0.7]", more="retries = 0\ntrials = 3")
    path = tmp_path / "sweep.toml"
    text = path.read_text(encoding="utf-8").replace(str(SCRIPT), "train.py")
    path.write_text(text, encoding="utf-8")
    code, output = sweep(tmp_path)
    assert code == 0, output
    assert "trials           2 finished, 1 failed" in output
    assert re.search("1 failed; .*: vinedresser sweep sweep.toml --retry-failed", output)
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    path.write_text(
        text.replace("trials = 3", "trials = 3\npoints = [{ x = 0.7 }]"), encoding="utf-8"
    )
    code, output = sweep(tmp_path, "--retry-failed")
    assert code == 0, output
    assert "trials           4 finished, 1 failed" in output
    assert "a typo; again as trial-0003" in output
    assert "--retry-failed" not in output
    tried = [configuration["x"] for configuration in configurations(tmp_path / "runs" / "search")]
    assert tried == [0.1, 0.2, 0.5, 0.5, 0.7]
    tags = mlflow_runs(tmp_path / "runs")["search"]["tags"]
    assert (tags["sweep.running"], tags["sweep.finished"]) == ("0", "4")


@pytest.mark.slow
def test_a_trial_that_a_rule_suspects_is_held_against_the_sound_ones(
    tmp_path: Path, mlflow_store: MakeStore, mlflow_runs: Callable[..., dict[str, Any]]
) -> None:
    mlflow_store(tmp_path / "runs")
    write(tmp_path, 'x = { float = [0.0, 1.0] }\nkind = ["good", "odd"]', parameters="pause = 0.3")
    text = (tmp_path / "sweep.toml").read_text(encoding="utf-8")
    good = [{"x": x, "kind": "good"} for x in (0.5, 0.52, 0.54, 0.56)]
    odd = [{"x": x, "kind": "odd"} for x in (0.1, 0.9)]
    points = str([*good, *odd]).replace(":", " =").replace("'x'", "x").replace("'kind'", "kind")
    text = text.replace('"grid"', f'"random"\ntrials = 6\npoints = {points}')
    # Four of five sound ones go on at each rung, so that there is something to compare with.
    text = text.replace('"none"', '{ name = "median", startup = 50, grace = 0 }')
    text = text.replace("max_concurrent = 2", "max_concurrent = 1")
    rule = f'[rules."{Path(__file__).with_name("sweep_rules.py")}:HighLoss"]'
    (tmp_path / "sweep.toml").write_text(text + rule, encoding="utf-8")
    code, output = sweep(tmp_path)
    assert code == 0, output
    assert "best             trial-0005: accuracy 0.9 with x 0.9, kind odd" in output
    assert "5 finished" in output
    # As docs/sweeps.md says.
    where = 'tags.stop.rule = "high_loss" and metrics.`eval/accuracy` < 0.9'
    [(name, found)] = mlflow_runs(
        tmp_path / "runs", f'{where} and attributes.status = "KILLED"'
    ).items()
    assert name == "trial-0004"
    stopped = found["tags"]
    assert (stopped["stop.by"], stopped["stop.rule"]) == ("sweep", "high_loss")
    assert re.match("the loss is 9; .*epoch 1 .*accuracy of 0.025 ", stopped["stop.reason"])
    assert len(open_run(tmp_path / "runs" / "search" / "trial-0004").steps(mode="eval")) < 4


PYTHON = """
from pathlib import Path
from vinedresser.infra.services.prefect_environment import prepare_prefect

wait = prepare_prefect(Path("runs"))
from vinedresser.flows.sweep import sweep

wait()

state = sweep(Path("sweep.toml"), return_state=True)
print(state.type.value, state.message)
print(state.result(raise_on_failure=False).problem)
"""


@pytest.mark.thorough
def test_a_sweep_of_which_nothing_works_ends_and_prefect_says_why(
    tmp_path: Path, mlflow_store: MakeStore
) -> None:
    mlflow_store(tmp_path / "runs")
    write(tmp_path, 'x = { float = [0.0, 1.0], grid = 50 }\nkind = ["crash"]', more="retries = 0")
    done = COMMANDS.run(["-c", PYTHON], tmp_path, os.environ)
    state, problem = done.stdout.splitlines()[-2:]
    assert state == f"FAILED {problem}", done.stderr
    # What differs between the reasons is a number of each trial's own.
    assert re.match("the first 3 trials .*failed: this one always crashes, with x = 0.", problem)
    trials = list((tmp_path / "runs" / "search").glob("trial-*"))
    # Twice as many as run at a time may not be settled when the third is.
    assert 3 <= len(trials) <= 7


@pytest.mark.slow
def test_a_sweep_whose_trials_all_fail_came_to_nothing(
    tmp_path: Path, mlflow_store: MakeStore
) -> None:
    mlflow_store(tmp_path / "runs")
    write(tmp_path, 'x = [0.25, 0.5]\nkind = ["crash"]', more="retries = 0")
    code, output = sweep(tmp_path)
    assert code == 1
    assert "vinedresser: all 2 trials failed: this one always crashes, with x = 0." in output


@pytest.mark.thorough
def test_what_is_wrong_is_said_before_anything_begins(tmp_path: Path) -> None:
    write(tmp_path, "x = [0.1]\npause = [0.0, 1.0]")
    code, output = sweep(tmp_path)
    assert code == 2
    assert "sweep.toml: space.pause: also in run.parameters; remove one of them" in output
    (tmp_path / "sweep.toml").write_text("[sweep]\nmetric = 'a'\ntrials = 3\n", encoding="utf-8")
    code, output = sweep(tmp_path)
    assert code == 2
    assert "sweep.toml: space: missing; it defines the search space" in output
    assert not (tmp_path / "runs").exists()
