"""`vinedresser rerun`: the command of a run, and what differs here from when it ran."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.warm_python import COMMANDS
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import LaunchRecord, MachineRecord, read_record, write_record
from vinedresser.tasks.lifecycle.repeating import Repetition, repetition

VINEDRESSER = Path(sys.executable).parent / "vinedresser"
WHO = ("-c", "user.name=a", "-c", "user.email=a@example.org")


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *WHO, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a script, run as committed (first) and with a change (second)."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text("print('trained')\n")
    (folder / ".gitignore").write_text("runs\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    vinedresser(folder, "run", "--name", "first", "train.py", "--lr", "0.1")
    (folder / "train.py").write_text("print('trained twice')\n")
    vinedresser(folder, "run", "--name", "second", "train.py", "--api-key", "abcdef123456")
    git(folder, "stash")
    return folder


def vinedresser(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return COMMANDS.run([str(VINEDRESSER), *arguments], folder, os.environ)


def found(project: Path, name: str) -> Repetition:
    return repetition(open_run(project / "runs" / name))


def subjects(repeated: Repetition) -> list[str]:
    return [one.subject for one in repeated.differences]


def test_a_run_of_the_code_that_is_here_can_be_repeated_as_it_was_typed(project: Path) -> None:
    repeated = found(project, "first")
    assert repeated.differences == []
    assert repeated.lines == [
        f"cd {project}",
        "vinedresser run --name first train.py --lr 0.1",
    ]


def test_what_the_lines_say_repeats_the_run(project: Path) -> None:
    printed = vinedresser(project, "rerun", "runs/first")
    assert printed.returncode == 0
    *lines, unknown = printed.stdout.splitlines()
    assert unknown.startswith("unknown")
    typed = "\n".join(lines).replace("--name first", "--name again")
    path = f"{VINEDRESSER.parent}:{os.environ['PATH']}"
    subprocess.run(["sh", "-ec", typed], cwd="/", check=True, env={**os.environ, "PATH": path})
    assert open_run(project / "runs/again").info.code == open_run(project / "runs/first").info.code


def test_the_changes_that_a_run_had_are_named_and_can_be_applied(project: Path) -> None:
    [secret, code] = found(project, "second").differences
    assert secret.subject == "arguments"
    apply = code.remedy.rpartition(": ")[2]
    subprocess.run(["sh", "-ec", apply], cwd=project, check=True)
    try:
        assert subjects(found(project, "second")) == ["arguments"]
        assert subjects(found(project, "first")) == ["code"]
    finally:
        git(project, "checkout", "-q", ".")


def test_another_commit_is_named_with_the_way_back(project: Path) -> None:
    git(project, "commit", "-q", "--allow-empty", "-m", "second")
    [code] = found(project, "first").differences
    subprocess.run(["sh", "-ec", code.remedy], cwd="/", check=True, capture_output=True)
    assert found(project, "first").differences == []


def test_packages_variables_and_python_that_differ_are_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(project / "runs/first")
    machine = read_record(run.storage, MachineRecord)
    assert machine is not None
    other = {**machine.packages, "numpy": "0.1", "not-here": "2.0"}
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    try:
        write_record(run.storage, replace(machine, packages=other, gpus=["H200"]))
        packages, gpus, variable = repetition(run).differences
    finally:
        write_record(run.storage, machine)
    assert "not-here is missing (was 2.0), numpy" in packages.seen
    assert packages.remedy == "pip install not-here==2.0 numpy==0.1"
    assert "H200" in gpus.seen
    assert variable.remedy == "unset PYTHONHASHSEED"


def test_a_strangers_command_is_quoted_and_not_run(project: Path, tmp_path: Path) -> None:
    run = open_run(project / "runs/first")
    launch = read_record(run.storage, LaunchRecord)
    assert launch is not None
    victim = tmp_path / "made"
    hostile = replace(launch, invocation=["vinedresser", f"; touch {victim}", f"$(touch {victim})"])
    try:
        write_record(run.storage, hostile)
        printed = vinedresser(project, "rerun", "runs/first", "--json")
    finally:
        write_record(run.storage, launch)
    line = json.loads(printed.stdout)["lines"][-1]
    subprocess.run(["sh", "-c", line.replace("vinedresser", "true")], check=True)
    assert not victim.exists()


def test_a_run_that_vinedresser_did_not_start_says_so(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from vinedresser.capture import Hook\nHook('runs/own').close()\n"
    )
    subprocess.run([sys.executable, "own.py"], cwd=tmp_path, check=True)
    repeated = repetition(open_run(tmp_path / "runs/own"))
    assert repeated.directory == ""
    assert any("its script did" in sentence for sentence in repeated.unknown)
