"""Run one script under supervision, judged if asked to; no flow, no MLflow."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vinedresser.capture.config import CaptureConfig
from vinedresser.errors import VinedresserError
from vinedresser.infra.launcher import check_command, prepare_run, start
from vinedresser.infra.processes import this_process
from vinedresser.infra.run_directory import ExitRecord
from vinedresser.infra.storage import LocalStorage
from vinedresser.rules.base import capture_for
from vinedresser.rules.registry import rules_from_table
from vinedresser.tasks.judging import run_judge
from vinedresser.tasks.prepare import rules_key
from vinedresser.tasks.settle import settle_run

__all__ = ["prepare_script", "run_script"]

_GROUP = "default"


def prepare_script(
    directory: Path,
    command: Sequence[str],
    *,
    rules: Mapping[str, Mapping[str, Any]],
    total_steps: int | None = None,
    forward: bool = True,
) -> None:
    """Make the run directory of a script.

    Args:
        directory: of the run; its last part is the run's name.
        command: a Python script and its arguments, or any program and its arguments.
        rules: settings of each rule that is to judge the run.
        total_steps: optimizer steps that the whole run takes, if known.
        forward: pass the script's output through, beside the log.

    Raises:
        AlreadyARun: the directory holds a run.
        ConfigError: no such rule, or a setting of it is not right.
        LaunchError: there is no such script or program.
    """
    capture = CaptureConfig().with_defaults()
    program = [sys.executable] if command[0].endswith(".py") else []
    check_command([*program, *command], Path.cwd())
    prepare_run(
        directory,
        name=directory.name,
        argv=[*program, *command],
        cwd=Path.cwd(),
        total_steps=total_steps,
        capture=capture.to_json(),
        needs=capture_for(rules_from_table(rules)).to_json(),
        digest=capture.digest(),
        owner=this_process(),
        forward=forward,
    )
    if rules:
        text = json.dumps({"rules": rules}, indent=1)
        LocalStorage(directory).put(rules_key(_GROUP), [text.encode()])


def run_script(directory: Path) -> ExitRecord:
    """Start the prepared script, its output passed through, and return how it ended.

    Raises:
        LaunchError: it could not be started.
        JudgeFailed: the judge failed; the script had run to its end all the same.
    """
    supervisor = start(directory)
    failures: list[Exception] = []
    judge = threading.Thread(target=_judge, args=(directory, failures))
    if (directory / rules_key(_GROUP)).is_file():
        judge.start()
    supervisor.wait()
    if judge.is_alive():
        judge.join()
    end = settle_run(directory)
    if failures:
        raise failures[0]
    return end


def _judge(directory: Path, failures: list[Exception]) -> None:
    """Judge in a thread, and keep what went wrong for the caller."""
    try:
        run_judge(directory, _GROUP)
    except (VinedresserError, OSError) as error:
        failures.append(error)
