"""The experiment file: what it becomes, and what each kind of mistake in it says."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from vinedresser.errors import ConfigError
from vinedresser.rules.registry import RULES
from vinedresser.tasks.config.experiment import load_experiment

GOOD = """
[run]
name = "digits"
command = ["python", "train.py"]
total_steps = 100

[run.parameters]
lr = 0.1
epochs = 3

[variants.slow]
parameters = { lr = 0.001, verbose = true, quiet = false }
total_steps = 200

[variants.fast]

[capture.gradients]
every = 20
reductions = ["l2"]

[rules.vanishing_gradient]
severity = "warning"

[tracking]
uri = "sqlite:///mlflow.db"
"""


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "train.py").touch()
    path = tmp_path / "experiment.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_contract_gives_parameters_and_channels_as_sagemaker_does(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    more = GOOD.replace("total_steps = 100", 'contract = "sagemaker"') + '[data]\ntrain = "rows"\n'
    slow, _ = load_experiment(write(tmp_path, more)).specs
    assert slow.argv[2:] == [
        *("--epochs", "3", "--lr", "0.001", "--quiet", "False", "--verbose", "True"),
    ]
    for before, after, fact in (
        ('train = "rows"', 'train = "train.py"', "data.train"),
        ('train = "rows"', 'train = ["rows", "rows"]', "data.train"),
        (
            'train = "rows"',
            'train = ["s3://bucket/rows", "s3://bucket/more"]',
            "s3://bucket/more; copy the data into a folder first",
        ),
        ("epochs = 3", 'epochs = 3\napi_key = "abcdefgh"', "parameters.api_key"),
        ('"sagemaker"', '"sagemaker2"', "run.contract"),
        ('command = ["python", "train.py"]', 'entry = "json:dumps"', "contract"),
        ("[variants.slow]", "[run.metrics]\nacc = 'acc: ('\n[variants.slow]", "metrics: acc"),
    ):
        assert more.count(before) == 1
        with pytest.raises(ConfigError) as raised:
            load_experiment(write(tmp_path, more.replace(before, after)))
        assert fact in str(raised.value)
    # It is downloaded before the script starts, but not on the machines of a cluster.
    downloaded = more.replace('train = "rows"', 'train = "s3://bucket/rows"')
    assert load_experiment(write(tmp_path, downloaded)).channels == {"train": ["s3://bucket/rows"]}
    elsewhere = downloaded.replace("contract =", 'runner = "dask"\ncontract =')
    with pytest.raises(ConfigError, match=r"data\.train: run\.contract gives the script a folder"):
        load_experiment(write(tmp_path, elsewhere))


def test_variants_are_laid_on_what_all_share(tmp_path: Path) -> None:
    experiment = load_experiment(write(tmp_path, GOOD))
    slow, fast = experiment.specs
    assert slow.name == "digits-slow"
    assert slow.argv == [
        *(sys.executable, "train.py", "--lr", "0.001", "--epochs", "3", "--verbose"),
    ]
    assert slow.parameters == {"lr": 0.001, "epochs": 3, "verbose": True, "quiet": False}
    assert slow.total_steps == 200
    assert fast.argv[-4:] == ["--lr", "0.1", "--epochs", "3"]
    assert fast.total_steps == 100


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    experiment = load_experiment(write(tmp_path, GOOD))
    assert experiment.store == tmp_path / "runs"
    assert experiment.cwd == tmp_path
    assert experiment.tracking_uri == f"sqlite:///{tmp_path}/mlflow.db"
    assert load_experiment(experiment.path, store=tmp_path / "x").store == tmp_path / "x"


def test_trainings_side_by_side_share_the_cores(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    path = write(tmp_path, GOOD)
    for max_concurrent, threads in ((1, cores), (2, max(cores // 2, 1))):
        plan, _ = load_experiment(path, max_concurrent=max_concurrent).specs
        assert plan.environment["OMP_NUM_THREADS"] == str(threads)


def test_mlflow_is_that_of_the_environment_unless_the_file_names_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[run]\nname = "one"\ncommand = ["python", "train.py"]\n'
    monkeypatch.chdir(tmp_path)
    for given, uri in (
        ("http://mlflow:5000", "http://mlflow:5000"),
        ("sqlite:///here.db", f"sqlite:///{tmp_path}/here.db"),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", given)
        assert load_experiment(write(tmp_path, text)).tracking_uri == uri
        assert (
            load_experiment(write(tmp_path, GOOD)).tracking_uri == f"sqlite:///{tmp_path}/mlflow.db"
        )
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "./mlruns")
    with pytest.raises(ConfigError, match=r"^MLFLOW_TRACKING_URI: '\./mlruns': not a tracking URI"):
        load_experiment(write(tmp_path, text))


def test_without_variants_there_is_one_run(tmp_path: Path) -> None:
    text = '[run]\nname = "one"\ncommand = ["python", "train.py"]\n'
    experiment = load_experiment(write(tmp_path, text))
    assert [plan.name for plan in experiment.specs] == ["one"]
    assert experiment.tracking_uri == f"sqlite:///{tmp_path}/runs/mlflow.db"
    assert experiment.tracking_experiment == "one"


def test_what_the_rules_need_is_captured(tmp_path: Path) -> None:
    text = '[run]\nname = "one"\ncommand = ["python", "train.py"]\n'
    judged = load_experiment(write(tmp_path, text))
    assert judged.needs.asks("gradients/w", 0, "train").reductions
    assert not judged.capture.asks("gradients/w", 0, "train")
    unjudged = load_experiment(write(tmp_path, text + '[rules]\npreset = "none"\n'))
    assert not unjudged.needs.asks("gradients/w", 0, "train")
    assert unjudged.capture.asks("losses/x", 1, "train")


def test_a_predicate_has_no_place_in_a_file(tmp_path: Path) -> None:
    text = '[run]\nname = "one"\ncommand = ["python", "train.py"]\n'
    text += '[capture.gradients]\nevery = 10\nwhen = "lambda step, mode: True"\n'
    with pytest.raises(ConfigError, match=r"capture.gradients.when: only supported in Python"):
        load_experiment(write(tmp_path, text))


def test_rules_are_grouped_and_left_out(tmp_path: Path) -> None:
    text = GOOD + "[rules.nonfinite]\ngroup = 'fast'\n[rules]\noverfitting = false\n"
    groups = load_experiment(write(tmp_path, text)).rules
    assert groups["fast"] == {"nonfinite": {}}
    assert set(groups["default"]) == set(RULES) - {"nonfinite", "overfitting"}
    assert groups["default"]["vanishing_gradient"] == {"severity": "warning"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "run: missing; it needs at least name and command"),
        (
            "[run]\nname = 'x'\n",
            "run: command: give either command, a program and its",
        ),
        (
            "[run]\nname = 'x'\ncommand = []\n",
            "run: command: give either command, a program and its",
        ),
        ("[run]\nname = 'a/b'\ncommand = ['x']\n", "name: 'a/b' is not a valid directory name"),
        ("[run]\nname = ''\ncommand = ['x']\n", "run: name: empty; give a name"),
        (GOOD.replace("total_steps = 100", "environment_from = ['A=B']"), "'A=B' is not the name"),
        (
            GOOD.replace("total_steps = 100", "environment_from = ['A']\nenvironment.A = 'b'"),
            "environment_from: A is also in environment",
        ),
        (
            GOOD.replace("total_steps = 100", "runner = 'dask'").replace(
                "epochs = 3", "api_key = 'x'"
            ),
            "parameters.api_key looks like a secret, which is not sent to workers",
        ),
        (f"[run]\nname = '{'n' * 201}'\ncommand = ['x']\n", "is longer than 200 bytes"),
        (GOOD.replace("slow", '"../../../x"'), "variants: '../../../x' is not a valid directory"),
        (GOOD.replace("slow", '"/x"'), "variants: '/x' is not a valid directory name"),
        (GOOD.replace("slow", '".x"'), "variants: '.x' is not a valid directory name"),
        (GOOD.replace("slow", r'"a\nb"'), r"variants: 'a\nb' is not a valid directory name"),
        (GOOD.replace("slow", '""'), "variants: empty; give a name"),
        (GOOD.replace("slow", f"{'v' * 200}"), "is longer than 200 bytes"),
        ("[run]\nname = 'x'\ncommand = 'python x'\n", "run.command: input should be a valid list"),
        (GOOD.replace('"train.py"', '"trian.py"'), "run.command: "),
        (GOOD.replace('"train.py"', '"trian.py"'), "trian.py"),
        (GOOD.replace('"python"', '"pyhton"'), "pyhton"),
        (GOOD + "[runs]\n", "runs: unknown table; did you mean run, rules?"),
        (GOOD.replace("total_steps = 100", "total_step = 1"), "did you mean total_steps?"),
        (GOOD.replace("= 100", "= 'many'"), "run.total_steps: input should be a valid integer"),
        (
            GOOD.replace("total_steps = 100", "max_concurrent = 0"),
            "max_concurrent: must be at least 1, not 0",
        ),
        (
            GOOD.replace("total_steps = 100", "at_once = 2"),
            "run.at_once: renamed to run.max_concurrent",
        ),
        (
            GOOD.replace("total_steps = 100", "preflight = 'strikt'"),
            "or input should be 'strict', not 'strikt'",
        ),
        (
            GOOD.replace("total_steps = 100", "preflight = true\nrunner = 'dask'"),
            "run.preflight: only supported for trainings of an experiment file on this machine",
        ),
        (GOOD.replace("total_steps = 100", "cwd = 'away'"), "away: no such directory"),
        (GOOD.replace("total_steps = 200", "steps = 2"), "variants.slow.steps: no such key"),
        (GOOD.replace("capture.gradients", "capture.gradient"), "did you mean gradients?"),
        (GOOD.replace("every = 20", "evry = 20"), "capture.gradients.evry: no such key"),
        (GOOD.replace("every = 20", "every = -1"), "capture.gradients.every = -1"),
        (GOOD.replace('["l2"]', '["l3"]'), "one of min, max, mean, sum, l1, l2"),
        (GOOD + "[capture.mine]\nregex = '('\n", "mine: invalid regex '('"),
        (GOOD + "[capture]\nweights = 3\n", "weights = 3: must be a table"),
        (GOOD + "[capture]\nbudget = 2\n", "capture.budget = 2: must be above 0 and at most 1"),
        (
            GOOD.replace("rules.vanishing_gradient", "rules.vanishing_gradent"),
            "rules.vanishing_gradent: no such rule; did you mean vanishing_gradient?",
        ),
        (GOOD.replace('severity = "warning"', "rato = 1.0"), "did you mean ratio?"),
        (GOOD.replace('severity = "warning"', "severity = 'stopp'"), "stopp"),
        (GOOD + "[rules]\npreset = 'strickt'\n", "rules.preset: no such preset 'strickt'"),
        (GOOD + "[rules]\nnonfinite = 3\n", "rules.nonfinite: must be a table or false, not 3"),
        (GOOD.replace("uri =", "url ="), "tracking.url: no such key; did you mean uri?"),
        ("[run\n", "not valid TOML"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_experiment(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_budget_of_captures_is_that_of_the_file(tmp_path: Path) -> None:
    assert load_experiment(write(tmp_path, GOOD)).capture_budget is None
    experiment = load_experiment(write(tmp_path, GOOD + "[capture]\nbudget = 0.1\n"))
    assert experiment.capture_budget == 0.1
    assert "budget" not in experiment.capture.collections


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: no such file"):
        load_experiment(tmp_path / "nowhere.toml")


def test_values_that_look_like_secrets_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_experiment(write(tmp_path, GOOD)).notice == ""
    text = GOOD.replace("total_steps = 100", "environment_from = ['NOT_SET_HERE']")
    text += '[variants.hub]\nenvironment = { HF_TOKEN = "abcdefgh" }\n'
    text = text.replace("sqlite:///mlflow.db", "https://me:pw@host")
    experiment = load_experiment(write(tmp_path, text))
    assert re.match(r"environment\.HF_TOKEN, .*\btracking\.uri: .*\*\*\*", experiment.notice)
    assert "run.environment_from" in experiment.notice
    assert "abcdefgh" not in experiment.notice
    with pytest.raises(ConfigError, match=r"run\.environment_from: NOT_SET_HERE is not set"):
        experiment.refuse_missing()
    monkeypatch.setenv("NOT_SET_HERE", "")
    experiment.refuse_missing()


def test_ranks_share_the_cores_of_their_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(8)})
    ranks = GOOD.replace("total_steps = 100", "ranks = 2")
    experiment = load_experiment(write(tmp_path, ranks))
    # Four trainings of a thread for each rank would fit; there are two.
    assert (experiment.max_concurrent, experiment.notice) == (4, "")
    assert [spec.environment["OMP_NUM_THREADS"] for spec in experiment.specs] == ["2", "2"]
    more = load_experiment(write(tmp_path, ranks.replace("ranks = 2", "ranks = 9")))
    assert more.max_concurrent == 1
    assert "run.ranks: 9 ranks share 8 cores" in more.notice


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("ranks = 0", "run: ranks: must be from 1 to 1024, not 0"),
        ("ranks = true", "run.ranks: must not be true"),
        ("gpus = 1\ngpus_per_rank = 1", "run: gpus_per_rank: give either gpus or gpus_per_rank"),
        ("ranks = 2\npreflight = true", "run.preflight: not supported for a training of several"),
    ],
)
def test_wrong_settings_of_ranks(lines: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        load_experiment(write(tmp_path, GOOD.replace("total_steps = 100", lines)))
