"""The latest values of `vinedresser run` in the terminal's title."""

from __future__ import annotations

import os
import pty
import sys
import tty
from pathlib import Path

import pytest

from vinedresser.cli.views.terminal_title import live_title
from vinedresser.testing.runs import make_run, step_record


def read_until(descriptor: int, end: bytes) -> bytes:
    text = b""
    while not text.endswith(end):
        text += os.read(descriptor, 1)
    return text


@pytest.mark.thorough
def test_a_terminal_shows_the_latest_values_in_its_title_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "first", [step_record(one, scalars={"losses/x": 0.5}) for one in range(3)])
    master, slave = pty.openpty()
    tty.setraw(slave)
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with live_title(tmp_path / "first", None):
            shown = read_until(master, b"\x07")
        # The script's title comes back.
        after = read_until(master, b"\x1b[23;0t")
    os.close(master)
    assert shown == b"\x1b[22;0t\x1b]0;first   step 2   loss 0.5\x07"
    assert after.removeprefix(b"\x1b]0;first   step 2   loss 0.5\x07") == b"\x1b[23;0t"


@pytest.mark.parametrize(
    ("variable", "value"), [("TERM", "dumb"), ("TERM", "linux"), ("JPY_PARENT_PID", "1")]
)
def test_a_terminal_without_a_title_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    make_run(tmp_path / "first", [step_record(0, scalars={"losses/x": 0.5})])
    master, slave = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(variable, value)
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with live_title(tmp_path / "first", None):
            pass
        os.write(slave, b"end")
        assert read_until(master, b"end") == b"end"
    os.close(master)
