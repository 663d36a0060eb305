"""The options that are suggested name the script where it is known, else a place for a factory."""

from __future__ import annotations

import pytest

from vinedresser.snapshots.replay_options import replay_options, script_of


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (["train.py", "--lr", "0.1"], ["train.py", "--lr", "0.1"]),
        (["/venv/bin/python", "-u", "a/train.py", "x.py"], ["a/train.py", "x.py"]),
        (["python", "-m", "package.train", "x.py"], []),
        (["python", "-c", "import train", "x.py"], []),
        (["/venv/lib/package/__main__.py", "x.py"], []),
        (["/venv/bin/pytest", "tests", "x.py"], []),
        ([], []),
    ],
)
def test_the_script_of_a_command(command: list[str], script: list[str]) -> None:
    assert script_of(command) == script


def test_options() -> None:
    command = ["python", "train.py", "--lr", "1"]
    assert replay_options("torch", command, ["--save"]) == (
        ["--script", "train.py", "--locate", "--bisect", "--save", "--", "--lr", "1"]
    )
    factory = ["--factory", "MODULE:FUNCTION", "--locate", "--bisect"]
    # A script runs in one process only, and steps of custom Keras loops in factories.
    assert replay_options("torch", command, world_size=2) == factory
    assert replay_options("torch", ["python", "-m", "train"]) == factory
    assert replay_options("keras", command) == factory
    assert replay_options("keras", command, own_loop=True) == (
        ["--script", "train.py", "--locate", "--bisect", "--", "--lr", "1"]
    )
    assert replay_options("xgboost", command, factory="losses:relative") == (
        ["--factory", "losses:relative", "--bisect"]
    )
