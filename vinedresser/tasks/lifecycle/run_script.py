"""Run one script under supervision, judged if asked to; no flow, no MLflow."""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vinedresser.capture.attach.launching import attach_environment
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.errors import VinedresserError
from vinedresser.infra.launcher import check_command, prepare_run, settle, start
from vinedresser.processes import this_process
from vinedresser.rules.base import capture_for
from vinedresser.rules.registry import rules_from_table
from vinedresser.store.records import ExitRecord, heartbeats
from vinedresser.store.storage import LocalStorage
from vinedresser.tasks.lifecycle.additional_runs import accompany
from vinedresser.tasks.lifecycle.judging import run_judge
from vinedresser.tasks.lifecycle.prepare import rules_key
from vinedresser.tasks.lifecycle.settle import settle_run
from vinedresser.tasks.places.run_place import RunPlace

__all__ = [
    "SCRIPT_GROUP",
    "prepare_script",
    "run_name",
    "run_script",
    "run_to_end",
    "training_seen",
]

SCRIPT_GROUP = "default"


def prepare_script(
    directory: Path,
    command: Sequence[str],
    *,
    name: str | None = None,
    rules: Mapping[str, Mapping[str, Any]],
    collections: Mapping[str, Mapping[str, Any]] | None = None,
    attach: bool = True,
    total_steps: int | None = None,
    forward: bool = True,
) -> None:
    """Make the run directory of a script.

    Args:
        directory: of the run.
        command: a Python script and its arguments, ``-m`` and a module and its arguments, or any
            program and its arguments.
        name: of the run; None: the last part of its directory.
        rules: settings of each rule that is to judge the run.
        collections: by name, save configs of the collections to capture, as in an experiment file;
            losses and metrics are captured anyhow.
        attach: capture what the script trains without a hook of its own.
        total_steps: optimizer steps that the whole run takes, if known.
        forward: pass the script's output through, beside the log.

    Raises:
        AlreadyARun: the directory holds a run.
        ConfigError: no such rule or collection, or a setting of it is not right.
        LaunchError: there is no such script or program.
    """
    capture = CaptureConfig.from_json(collections or {}).with_defaults()
    needs = capture_for(rules_from_table(rules))
    # Here, not in the training, if the two do not agree on a collection.
    capture.merged(needs)
    program = [sys.executable] if command[0] == "-m" or command[0].endswith(".py") else []
    check_command([*program, *command], Path.cwd())
    prepare_run(
        directory,
        name=name or directory.name,
        argv=[*program, *command],
        cwd=Path.cwd(),
        total_steps=total_steps,
        capture=capture.to_json(),
        needs=needs.to_json(),
        digest=capture.digest(),
        environment=attach_environment() if attach else {},
        owner=this_process(),
        forward=forward,
    )
    if rules:
        text = json.dumps({"rules": rules}, indent=1)
        LocalStorage(directory).put(rules_key(SCRIPT_GROUP), [text.encode()])


def run_name(command: Sequence[str]) -> str:
    """Return what a run of a command is called: after its script or module, else its program."""
    for argument, following in itertools.zip_longest(command, command[1:], fillvalue=""):
        if argument == "-m" and following:
            return following.rpartition(".")[2]
        if argument.endswith(".py"):
            return Path(argument).stem
    return Path(command[0]).stem


def training_seen(directory: Path) -> bool:
    """Say whether any process of a run that was started has captured something."""
    return bool(heartbeats(LocalStorage(directory)))


def run_script(directory: Path) -> ExitRecord:
    """Start the prepared script, its output passed through, and return how it ended.

    Raises:
        LaunchError: it could not be started.
        VinedresserError: a judge failed; the script had run to its end all the same.
    """
    place = RunPlace(directory)
    end, failures = run_to_end(place)
    for one in place.complete():
        settle_run(one.location)
    if failures:
        raise failures[0]
    return end


def run_to_end(
    place: RunPlace, groups: Sequence[str] | None = None
) -> tuple[ExitRecord, list[BaseException]]:
    """Start the script that is prepared in a place, and judge what it trains until it has ended.

    Args:
        place: of its first run.
        groups: of rules that judge; None: those of a script, if there are any.

    Returns:
        How it ended, and what went wrong beside it.

    Raises:
        LaunchError: it could not be started.
    """
    supervisor = start(place.directory)
    if groups is None:
        judged = (place.directory / rules_key(SCRIPT_GROUP)).is_file()
        groups = [SCRIPT_GROUP] if judged else []
    failures: list[BaseException] = []
    threads = [threading.Thread(target=_judge, args=(place, group, failures)) for group in groups]
    threads.append(threading.Thread(target=_accompany, args=(place, groups, failures)))
    for thread in threads:
        thread.start()
    supervisor.wait()
    # Mostly there is nothing to settle; there is when the supervisor itself was killed.
    end = settle(place.directory)
    for thread in threads:
        thread.join()
    return end, failures


def _judge(place: RunPlace, group: str, failures: list[BaseException]) -> None:
    """Judge in a thread, and keep what went wrong for the caller."""
    try:
        run_judge(place.directory, group, location=place.location)
    except (VinedresserError, OSError) as error:
        failures.append(error)


def _accompany(place: RunPlace, groups: Sequence[str], failures: list[BaseException]) -> None:
    """See to the further trainings in a thread, and keep what went wrong for the caller."""
    try:
        failures += accompany(place, groups, record=False)
    except (VinedresserError, OSError) as error:
        failures.append(error)
