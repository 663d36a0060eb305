"""Take one script through the lifecycle of a run, without a flow."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from vinedresser.capture.attach.launching import attach_environment
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.live.settings import LiveSettings
from vinedresser.capture.recording.budget import check_share
from vinedresser.errors import LaunchError, VinedresserError
from vinedresser.infra.supervise.hosts.commands import refuse_launcher
from vinedresser.infra.supervise.launcher import check_command, prepare_run
from vinedresser.objects import LocalStorage, Location, StoreUrl, parse_location
from vinedresser.processes import this_process
from vinedresser.rules.base import capture_for
from vinedresser.rules.registry import rules_from_table
from vinedresser.rules.stated.claims import needs_of
from vinedresser.snapshots.settings import SnapshotSettings, check_guard
from vinedresser.store.records import (
    ExitRecord,
    LaunchRecord,
    RunRecord,
    TrackingRecord,
    heartbeats,
    new_run,
    read_record,
)
from vinedresser.store.run_settings import script_place
from vinedresser.tasks.config.references import good_runs_for
from vinedresser.tasks.config.snapshots_table import stopping
from vinedresser.tasks.config.stated_tables import add_stated, with_good_runs
from vinedresser.tasks.lifecycle.judging import rules_key
from vinedresser.tasks.lifecycle.mlflow_run import begin_tracking
from vinedresser.tasks.lifecycle.supervision import Attendance, Stages, supervise
from vinedresser.tasks.places.remote_place import RemotePlace
from vinedresser.tasks.places.run_place import RunPlace

__all__ = [
    "Script",
    "ScriptEnd",
    "parameters_of_arguments",
    "prepare_remote_script",
    "prepare_script",
    "run_script",
]

_GROUP = "default"
# Also hydra's: ``model.depth=3``, ``+data.size=4``.
_ASSIGNED = re.compile(r"\+{0,2}(?P<name>[A-Za-z_][\w./@-]*)=(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True)
class Script:
    """A script to run.

    Attributes:
        command: a Python script and its arguments, ``-m`` and a module and its arguments, or any
            program and its arguments.
        rules: settings of each rule that judges the run, by name.
        collections: save configs of the collections to capture, by name, as in an experiment file;
            losses and metrics are always captured.
        attach: capture trainings that have no hook of their own.
        capture_budget: share of the training's time for captures that only rules need, above 0;
            1: no limit; None: the hook's default.
        guard: whether gradients that are not finite are looked for; None: the hook's default.
        snapshots: when snapshots are taken and how many are kept.
        live: whether the training may be steered.
        total_steps: number of optimizer steps in the whole run, None if unknown.
        forward: pass the script's output through, besides logging it.
        ranks: processes of the script that train together.
        metrics: see `LaunchSettings`.
        parameters: hyperparameters, for the record; {}: those of its arguments.
        expectations: what the user expects of the training, a line each.
        references: runs to compare with, or "auto"; see `good_runs_for`.
        environment: variables added to the inherited ones.
        grace: see `LaunchSettings`.
        launcher: what starts them; see `LaunchSettings`.
        hosts: number of hosts that share them, or their names.
    """

    command: Sequence[str]
    rules: Mapping[str, Mapping[str, Any]]
    collections: Mapping[str, Mapping[str, Any]] | None = None
    attach: bool = True
    capture_budget: float | None = None
    guard: str | None = None
    snapshots: SnapshotSettings = field(default_factory=SnapshotSettings)
    live: LiveSettings = field(default_factory=LiveSettings)
    total_steps: int | None = None
    forward: bool = True
    ranks: int = 1
    metrics: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    expectations: Sequence[str] = ()
    references: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    grace: float = 10.0
    launcher: str = "local"
    hosts: int | list[str] = 1

    @property
    def argv(self) -> list[str]:
        """The program and its arguments; the interpreter comes before a Python script."""
        first = self.command[0]
        program = [sys.executable] if first == "-m" or first.endswith(".py") else []
        return [*program, *self.command]


def prepare_script(directory: Path, script: Script, *, place: Location | None = None) -> RunPlace:
    """Turn a directory into the run of a script, and return its place.

    Args:
        place: location of the run; None: its directory.

    Raises:
        AlreadyARun: the directory already holds a run.
        ConfigError: unknown rule or collection, or an invalid setting of one, of the budget, or of
            an expectation.
        LaunchError: the script or program does not exist, or what starts its ranks.
    """
    if script.capture_budget is not None:
        check_share(script.capture_budget, "--capture-budget")
    if script.guard is not None:
        check_guard(script.guard, "--guard")
    capture = CaptureConfig.from_json(script.collections or {}).with_defaults()
    argv = script.argv
    behind = script.command[script_place(script.command) + 1 :]
    parameters = dict(script.parameters or parameters_of_arguments(behind))
    store = parse_location(place or directory).parent
    good = good_runs_for(script.references, store, argv, parameters, where="--reference")
    groups = {_GROUP: {name: dict(one) for name, one in script.rules.items()}}
    add_stated(groups, expects=bool(script.expectations), compares=good is not None)
    table = with_good_runs(groups[_GROUP], good)
    rules = rules_from_table(table)
    needs = capture_for(rules, needs_of(script.expectations))
    # Report here, not in the training, if the two disagree about a collection.
    capture.merged(needs)
    check_command(argv, Path.cwd())
    run = replace(
        new_run((place or directory).name, parameters),
        total_steps=script.total_steps,
        capture=capture.to_json(),
        capture_digest=capture.digest(),
        needs=needs.to_json(),
        capture_budget=script.capture_budget,
        guard=script.guard or "",
        snapshots=stopping(script.snapshots, rules).to_json(),
        live=script.live.to_json(),
        expectations=[*script.expectations],
        references=[*good.runs] if good else [],
        named_references=[*good.named] if good else [],
    )
    launch = LaunchRecord(
        argv,
        str(Path.cwd()),
        environment={**script.environment, **(attach_environment() if script.attach else {})},
        owner=asdict(this_process()),
        forward=script.forward,
        attach=script.attach,
        ranks=script.ranks,
        metrics=dict(script.metrics),
        grace=script.grace,
        launcher=script.launcher,
        hosts=script.hosts,
    )
    if launch.system.name != "local" and launch.masked:
        raise LaunchError(
            "an argument looks like a secret, which is not sent to other processes; set it as an "
            "environment variable where they start"
        )
    refuse_launcher(launch)
    prepare_run(directory, run, launch)
    if table:
        text = json.dumps({"rules": table}, indent=1)
        LocalStorage(directory).put(rules_key(_GROUP), [text.encode()])
    return RunPlace(directory)


def prepare_remote_script(
    url: StoreUrl, script: Script, say: Callable[[str], object]
) -> RemotePlace:
    """Prepare the run of a script on an object store, and return its place.

    Args:
        say: reports a sentence to the user.

    Raises:
        ConfigError: unknown rule or collection, or an invalid setting of one.
        LaunchError: the script or program does not exist.
        OSError: the spool cannot be written.
    """
    place = RemotePlace.make(url, say)
    try:
        prepare_script(place.directory, script, place=url)
    except VinedresserError:
        place.discard()
        raise
    return place


class ScriptEnd(NamedTuple):
    """The end of a script.

    Attributes:
        seen: whether any of its processes captured something.
        by_hook: whether a hook ended it when it was asked to stop; otherwise its exit code is its
            own.
    """

    record: ExitRecord
    seen: bool
    by_hook: bool


def run_script(place: RunPlace, tracking: TrackingRecord | None = None) -> ScriptEnd:
    """Run the script that was prepared in a place, and settle its runs.

    Args:
        tracking: where MLflow keeps its runs, without a run; None: it gets none.

    `RunPlace.arrived` then has the runs of the script that are complete in their store.

    Raises:
        AlreadyARun: the store already holds a run there; nothing was started.
        LaunchError: the script could not be started.
        StoreError: the store refused a request.
        TrackingError: MLflow's database or server refused.
        VinedresserError: a judge failed; the script still ran to its end.
    """
    try:
        place.begin()
    except VinedresserError:
        if isinstance(place, RemotePlace):
            place.discard()
        raise
    storage = LocalStorage(place.directory)
    run = read_record(storage, RunRecord)
    if tracking is not None and run is not None:
        begin_tracking(place, storage, run, tracking)
    groups = [_GROUP] if storage.exists(rules_key(_GROUP)) else []
    ended: list[ScriptEnd] = []

    def launch(place: RunPlace) -> None:
        # Noted here: the spool of a run on an object store is removed when it is complete.
        record, signs = place.train(), heartbeats(storage)
        ended.append(ScriptEnd(record, bool(signs), any(sign.stopped for sign in signs)))

    errors = supervise(
        place, Attendance(groups, record=tracking is not None), Stages(launch=launch)
    )
    if errors:
        raise errors[0]
    return ended[0]


def parameters_of_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the hyperparameters that a script's arguments give.

    ``--lr 0.1``, ``--lr=0.1``, ``-b 32`` and ``model.depth=3`` give a name a value, ``--fast``
    gives true. Several values become a list, of an option if they are all numbers or all text; the
    arguments without a name are ``arguments``. Finite numbers, true and false have their JSON type.

    Args:
        arguments: those behind the script.
    """
    found: dict[str, list[Any]] = {}
    option = ""
    for argument in arguments:
        given = _ASSIGNED.fullmatch(argument.lstrip("-"))
        is_option = argument.startswith("-") and argument != "-" and not _is_number(argument)
        if given and (is_option or not option):
            found.setdefault(given["name"], []).append(_value(given["value"]))
            option = ""
        elif is_option:
            option = argument.lstrip("-")
            found.setdefault(option or "arguments", [])
        else:
            value = _value(argument)
            before = found.get(option, [])[-1:]
            if before and isinstance(before[0], str) is not isinstance(value, str):
                option = ""
            found.setdefault(option or "arguments", []).append(value)
    return {name: _joined(values) for name, values in found.items()}


def _joined(values: list[Any]) -> Any:
    if not values:
        return True
    return values[0] if len(values) == 1 else values


def _is_number(argument: str) -> bool:
    return not isinstance(_value(argument), str)


def _value(text: str) -> Any:
    """Return a finite number, true or false as such, and all else as text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        try:
            number = float(text)
        except ValueError:
            return text
    return number if math.isfinite(number) else text
