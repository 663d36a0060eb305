"""A program that is forked by a process of the tests runs as one in a Python of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import warm_python
from tests.waiting import until
from tests.warm_python import WarmPython

PROGRAM = """
import os, sys
print(__name__, globals().get("__file__"), sys.argv, os.path.abspath(sys.path[0]), os.getcwd())
print(os.environ.get("OWN"), os.environ.get("HOME"), sys.stdin.read())
print("problem", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def python() -> Iterator[WarmPython]:
    process = WarmPython("json")
    yield process
    process._end()


@pytest.mark.parametrize("words", [["-c", PROGRAM], ["inner/program.py"], ["-m", "inner.program"]])
def test_a_program_does_what_it_does_alone(
    python: WarmPython, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/program.py").write_text(PROGRAM)
    words, environment = [*words, "a b"], {"OWN": "value"}
    alone = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env=environment,
        input="given",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (alone.returncode, alone.stderr) == (3, "problem\n")
    found = python.run(words, tmp_path, environment, given="given")
    assert (found.returncode, found.stdout, found.stderr) == (3, alone.stdout, alone.stderr)
    merged = python.run(words, tmp_path, environment, given="given", merged=True)
    assert sorted(merged.stdout.splitlines()) == sorted((alone.stdout + alone.stderr).splitlines())


def test_a_program_may_run_beside_its_test_and_is_killed_if_it_outlives_it(
    python: WarmPython, tmp_path: Path
) -> None:
    code = "import os, signal; open('pid', 'w').write(f'{os.getpid()} '); signal.pause()"

    def pid() -> str:
        path = tmp_path / "pid"
        return path.read_text() if path.exists() else ""

    with python.running(["-c", code], tmp_path, {}) as ended:
        until(lambda: pid().endswith(" "), "the program begins")
        assert not ended.done()
    until(lambda: not psutil.pid_exists(int(pid())), "its end")
    with python.running(["-c", "print(1)"], tmp_path, {}) as ended:
        assert ended.result(60).stdout == "1\n"


def test_a_program_gets_nothing_that_an_earlier_test_has_set(
    python: WarmPython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Read when Python starts, and seen in /proc by those who look for what a test has left.
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    told = "print(__debug__, b'PYTHONOPTIMIZE' in open('/proc/self/environ', 'rb').read())"
    assert python.run(["-c", told], tmp_path, {}).stdout == "True False\n"


def test_a_program_that_takes_too_long_does_not_answer_for_the_next_one(
    python: WarmPython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(warm_python, "_PATIENCE", 0.2)
        with pytest.raises(TimeoutError):
            python.run(["-c", "import signal; signal.pause()"], tmp_path, {})
    killed = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert python.run(["-c", killed], tmp_path, {}).returncode == -signal.SIGKILL
    assert python.run(["-c", "print(2)"], tmp_path, {**os.environ}).stdout == "2\n"
