"""A run directory is what a script made for SageMaker's containers expects."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vinedresser.errors import ConfigError
from vinedresser.infra.supervise.cores import cores
from vinedresser.infra.supervise.launcher import prepare_run, start, wait_for_exit
from vinedresser.infra.supervise.sagemaker import (
    configuration,
    hyperparameters_as_options,
    read_container,
)
from vinedresser.objects import LocalStorage
from vinedresser.store.outputs import outputs_note
from vinedresser.store.records import ExitRecord, LaunchRecord, new_run

# Writes what it is told, as the scripts of SageMaker's examples read it, and a model.
SCRIPT = """
import json, os, sys
host = os.environ["SM_CURRENT_HOST"]
told = {name: value for name, value in os.environ.items() if name.startswith("SM_")}
told["rank"] = os.environ.get("RANK")
with open(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], host + ".json"), "w") as file:
    json.dump(told, file)
if host == "algo-1":
    open(os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"), "w").close()
"""


def run(tmp_path: Path, script: str, ranks: int = 1, **environment: str) -> tuple[Path, ExitRecord]:
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    (tmp_path / "data").mkdir()
    record = new_run("job", {"epochs": 2, "lr": 0.5, "backend": "gloo", "augment": True})
    record = replace(record, data={"training": [str(tmp_path / "data")]})
    argv = [sys.executable, "-S", "train.py"]
    directory = tmp_path / "run"
    launch = LaunchRecord(
        argv, str(tmp_path), ranks=ranks, contract="sagemaker", environment=environment
    )
    prepare_run(directory, record, launch)
    start(directory).wait()
    end = wait_for_exit(directory, 60)
    assert end is not None
    return directory, end


def told(directory: Path, host: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / f"output/data/{host}.json").read_text())
    return found


def test_one_process_is_one_host(tmp_path: Path) -> None:
    directory, end = run(tmp_path, SCRIPT, SM_LOG_LEVEL="10")
    assert end.cause == "finished"
    seen = told(directory, "algo-1")
    assert seen["SM_HOSTS"] == '["algo-1"]'
    assert json.loads(seen["SM_HPS"]) == {
        "epochs": 2,
        "lr": 0.5,
        "backend": "gloo",
        "augment": True,
    }
    assert (seen["SM_HP_LR"], seen["SM_HP_BACKEND"], seen["SM_HP_AUGMENT"]) == (
        *("0.5", "gloo", "true"),
    )
    assert json.loads(seen["SM_CHANNELS"]) == ["training"]
    assert seen["SM_CHANNEL_TRAINING"] == str(tmp_path / "data")
    assert seen["SM_MODEL_DIR"] == str(directory / "model")
    assert seen["SM_NUM_CPUS"] == str(cores())
    assert seen["SM_USER_ENTRY_POINT"] == "train.py"
    assert json.loads(seen["SM_USER_ARGS"]) == [
        *("--augment", "True", "--backend", "gloo", "--epochs", "2", "--lr", "0.5"),
    ]
    assert json.loads(seen["SM_TRAINING_ENV"])["is_master"] is True
    # What the user sets counts.
    assert seen["SM_LOG_LEVEL"] == "10"
    config = directory / "input/config"
    stored = json.loads((config / "hyperparameters.json").read_text())
    # As SageMaker's SDK writes them: texts of JSON.
    assert {name: json.loads(text) for name, text in stored.items()} == json.loads(seen["SM_HPS"])
    assert json.loads((config / "resourceconfig.json").read_text())["current_host"] == "algo-1"
    assert "training" in json.loads((config / "inputdataconfig.json").read_text())
    assert outputs_note(LocalStorage(directory), []) == "model (1), output/data (1)"


def test_ranks_are_hosts_in_the_order_of_their_names(tmp_path: Path) -> None:
    directory, end = run(tmp_path, SCRIPT, ranks=11)
    assert end.cause == "finished"
    hosts = json.loads(told(directory, "algo-1")["SM_HOSTS"])
    assert hosts == sorted(hosts)
    for host in hosts:
        # Scripts take the place of their own name as their rank.
        assert told(directory, host)["rank"] == str(hosts.index(host))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Exception during training: no data\n", "no data"),
        ("failed:\nTraceback (most recent call last):\n  File 1\nValueError: x\n", "ValueError: x"),
        ("", "exit code 7"),
    ],
)
def test_the_script_says_why_it_failed(tmp_path: Path, text: str, reason: str) -> None:
    script = f"""
import os, sys
with open(os.path.join(os.environ["SM_OUTPUT_DIR"], "failure"), "w") as file:
    file.write({text!r})
sys.exit(7)
"""
    _, end = run(tmp_path, script)
    assert end.code == 7
    assert reason in end.reason


def test_a_link_in_place_of_the_reason_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    script = f"""
import os, sys
os.symlink({str(secret)!r}, os.path.join(os.environ["SM_OUTPUT_DIR"], "failure"))
sys.exit(7)
"""
    _, end = run(tmp_path, script)
    assert "secret" not in end.reason


def test_options_are_those_of_a_container() -> None:
    given = {"b": 1, "names": [1, 2], "map": {"y": 2, "x": 1}, "none": None, "flag": False}
    assert hyperparameters_as_options(given) == [
        *("-b", "1", "--flag", "False", "--map", "x=1,y=2", "--names", "[1, 2]", "--none", ""),
    ]


def tree(base: Path, **files: object) -> Path:
    config = base / "input/config"
    config.mkdir(parents=True)
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (config / f"{name}.json").write_text(text, encoding="utf-8")
    return base


HOSTS = {"current_host": "algo-2", "hosts": ["algo-2", "algo-1"]}


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    given = {"sagemaker_program": '"train.py"', "lr": "0.5", "name": "plain text", "flag": "true"}
    base = tree(
        tmp_path,
        hyperparameters=given | {"sagemaker_mpi_enabled": "true", "sagemaker_region": '"x"'},
        resourceconfig=HOSTS,
        inputdataconfig={"train": {}},
    )
    found = read_container(base, {})
    assert found.hyperparameters == {"lr": 0.5, "name": "plain text", "flag": True}
    assert found.system == {"sagemaker_mpi_enabled": True}
    assert (found.hosts, found.host) == (["algo-1", "algo-2"], "algo-2")
    assert found.channels == {"train": str(base / "input/data/train")}
    assert found.command == ["train.py"]
    assert found.cwd == str(base / "code")
    assert json.loads(found.environment()["SM_TRAINING_ENV"])["is_master"] is False
    again = tmp_path / "again"
    for path, content in configuration(found).items():
        (again / path).parent.mkdir(parents=True, exist_ok=True)
        (again / path).write_bytes(content)
    same = read_container(again, {"SAGEMAKER_PROGRAM": "train.py"})
    assert same.hyperparameters == found.hyperparameters
    assert same.hosts == found.hosts


@pytest.mark.parametrize(
    ("files", "fact"),
    [
        ({}, "resourceconfig.json"),
        ({"resourceconfig": "{"}, "resourceconfig.json"),
        ({"resourceconfig": []}, "resourceconfig.json"),
        ({"resourceconfig": {"hosts": ["a"], "current_host": "b"}}, "current_host"),
        ({"resourceconfig": HOSTS}, "SAGEMAKER_PROGRAM"),
        ({"resourceconfig": HOSTS, "hyperparameters": {"sagemaker_program": '"../x.py"'}}, "../x"),
        ({"resourceconfig": HOSTS, "hyperparameters": {"sagemaker_program": '"/x.py"'}}, "/x.py"),
        ({"resourceconfig": HOSTS, "hyperparameters": "[]"}, "hyperparameters.json"),
    ],
)
def test_a_tree_that_is_none_is_refused(
    tmp_path: Path, files: dict[str, object], fact: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        read_container(tree(tmp_path, **files), {})
    assert fact in str(raised.value)
