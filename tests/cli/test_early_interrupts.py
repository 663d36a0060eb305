"""Ctrl-C while the command line is still loading."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vinedresser.testing.runs import make_run, step_record

# Ctrl-C when a module is first looked for.
INTERRUPTED = """\
import signal, sys

awaited = sys.argv.pop(1)

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == awaited:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from vinedresser.cli import main
main()
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "module", ["vinedresser.cli.application", "typer", "vinedresser.queries.asking"]
)
def test_ctrl_c_is_no_traceback(tmp_path: Path, module: str) -> None:
    make_run(tmp_path / "run", [step_record(0, scalars={"losses/a": 1.0})])
    command = [sys.executable, "-c", INTERRUPTED, module, "ask", str(tmp_path / "run"), "loss"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr
