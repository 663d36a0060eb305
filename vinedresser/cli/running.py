"""`vinedresser run`: run one unchanged script under supervision."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vinedresser.cli.interrupts import exit_code, interrupts_stop
from vinedresser.cli.options import (
    DEFAULT_STORE,
    CollectionOption,
    PresetOption,
    RuleOption,
    check_script_argument,
    selected_rules,
    tables,
)
from vinedresser.errors import ConfigError
from vinedresser.masking import masked_arguments, masked_text

if TYPE_CHECKING:
    from vinedresser.store.records import TrackingRecord
    from vinedresser.tasks.lifecycle.run_script import Script, ScriptEnd
    from vinedresser.tasks.places.run_place import RunPlace

__all__ = [
    "UNASKED",
    "ExpectOption",
    "MetricOption",
    "ReferenceOption",
    "code_of",
    "metrics_of",
    "run",
    "supervised",
]

_STOPPED_BY_RULE = 3
# Exit codes of a script that a hook has ended.
_BY_HOOK = (0, 128 + signal.SIGTERM)
MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME=REGEX",
        help="A metric in the printed lines, the first group of a regex; repeatable.",
    ),
]

ExpectOption = Annotated[
    list[str] | None,
    typer.Option(
        "--expect",
        metavar="LINE",
        help="What you expect, such as 'accuracy > 0.9 by epoch 3, else stop'; repeatable.",
    ),
]

ReferenceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="RUN|auto",
        help="A good run to compare with, or the last ones of the script; repeatable.",
    ),
]

# Rules of a run for which none are chosen: a stranger's training is told about, not stopped.
UNASKED = "advisory"


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT [ARGS]...",
            help="A Python script, -m MODULE or any program, with its arguments.",
        ),
    ],
    *,
    store: Annotated[str, typer.Option(help="Directory of the runs or s3://bucket/prefix.")] = str(
        DEFAULT_STORE
    ),
    name: Annotated[
        str | None, typer.Option(help="Name of the run (default: from the script).")
    ] = None,
    preset: PresetOption = None,
    rule: RuleOption = None,
    collection: CollectionOption = None,
    capture_budget: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the time for captures that only rules need (default: 0.02; 1: no "
            "limit).",
        ),
    ] = None,
    guard: Annotated[
        str | None,
        typer.Option(
            metavar="nonfinite|off",
            help="Before each update, look for gradients that are not finite and take a snapshot "
            "(default: off; nonfinite with --snapshot-every).",
        ),
    ] = None,
    snapshot_every: Annotated[
        int, typer.Option(min=0, metavar="N", help="Take a snapshot every N steps; 0: none.")
    ] = 0,
    attach: Annotated[
        bool, typer.Option("--attach/--no-attach", help="Capture trainings without a hook.")
    ] = True,
    steps: Annotated[int | None, typer.Option(help="Total number of steps, if known.")] = None,
    ranks: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Start N processes that train together."),
    ] = 1,
    metric: MetricOption = None,
    expect: ExpectOption = None,
    reference: ReferenceOption = None,
    launcher: Annotated[
        str,
        typer.Option(metavar="NAME", help="What starts them: local, torchrun, mpi, ray or slurm."),
    ] = "local",
    hosts: Annotated[
        str,
        typer.Option(metavar="N|HOST,HOST", help="Hosts that share them, with a launcher."),
    ] = "1",
    control: Annotated[
        bool | None,
        typer.Option(
            "--control/--no-control",
            help="Allow the training to be paused, or nothing of it to be changed (default: if "
            "the script declares a tunable parameter).",
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Let the running training be asked by this user.")
    ] = False,
    replay_controls: Annotated[
        str, typer.Option(metavar="RUN", help="Make the changes of parameters of this run again.")
    ] = "",
    track: Annotated[bool, typer.Option("--track", help="Log the run to MLflow.")] = False,
    tracking_uri: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Log it there (default of --track: MLFLOW_TRACKING_URI, or mlflow.db in the "
            "store).",
        ),
    ] = None,
) -> None:
    """Run one unchanged training script under supervision.

    The training is captured in STORE/NAME. Output and exit code are those of the script; the exit
    code is 3 if a rule stopped it. Without --preset or --rule, all rules judge it and none stops it
    (the preset advisory).
    """
    from vinedresser.capture.live.settings import LiveSettings
    from vinedresser.cli.views.console import error_console, say
    from vinedresser.cli.views.results import print_no_training
    from vinedresser.infra.supervise.cores import core_shortage
    from vinedresser.snapshots.settings import SnapshotSettings
    from vinedresser.store.run_settings import script_name
    from vinedresser.tasks.lifecycle.run_script import Script

    check_script_argument(command, "run")
    script = Script(
        command,
        selected_rules(preset or (None if rule else UNASKED), rule),
        tables("--collection", collection),
        attach=attach,
        capture_budget=capture_budget,
        guard=guard or ("nonfinite" if snapshot_every else None),
        snapshots=SnapshotSettings(every=snapshot_every),
        live=LiveSettings(control, replay_controls, live).located(Path.cwd()),
        total_steps=steps,
        ranks=ranks,
        metrics=metrics_of(metric),
        expectations=expect or [],
        references=reference or [],
        launcher=launcher,
        hosts=_hosts(launcher, hosts, ranks, store),
    )
    if script.hosts == 1 and (short := core_shortage(ranks)):
        say(f"--ranks: {short}", to=error_console)
    if masked_arguments(command) != list(command):
        say(
            "an argument looks like a secret; the run and its report show *** instead; pass "
            "secrets as environment variables",
            to=error_console,
        )
    stem = script_name(command)
    tracking = _tracking(store, tracking_uri, stem) if track or tracking_uri else None
    ended = supervised(script, store, name, stem=stem, tracking=tracking)
    end = ended.record
    if attach and end.cause == "finished" and not ended.seen:
        print_no_training(error_console)
    if end.cause == "crashed" and (active := _other_environment(command[0])):
        say(
            f"vinedresser: the script ran with {sys.executable}; to run it in the active "
            f"environment {active}, write `vinedresser run python ...`",
            to=error_console,
        )
    sys.exit(code_of(ended))


def supervised(
    script: Script,
    store: str,
    name: str | None,
    *,
    stem: str,
    tracking: TrackingRecord | None = None,
) -> ScriptEnd:
    """Run a script under supervision, and print how its trainings ended.

    Args:
        store: directory of the runs or URL.
        name: name of the run; None: the first free one of STEM-1, STEM-2 and so on.
        stem: the first part of such a name.
        tracking: where MLflow keeps its runs, without a run; None: it gets none.

    Raises:
        VinedresserError: see `tasks.lifecycle.run_script`.
    """
    from vinedresser.cli.views.console import error_console
    from vinedresser.cli.views.results import print_result
    from vinedresser.cli.views.terminal_title import live_title
    from vinedresser.tasks.lifecycle.run_result import run_result
    from vinedresser.tasks.lifecycle.run_script import run_script

    place = _place(store, name, script, stem)
    with interrupts_stop([place.directory]), live_title(place.directory, script.total_steps):
        ended = run_script(place, tracking)
    for one in place.arrived:
        print_result(run_result(one.location), to=error_console)
    return ended


def metrics_of(given: list[str] | None) -> dict[str, str]:
    """Return the regexes of ``--metric`` by name.

    Raises:
        ConfigError: one is invalid.
    """
    from vinedresser.printed_metrics import check_metrics

    metrics = {}
    for one in given or []:
        name, equals, regex = one.partition("=")
        if not equals:
            raise ConfigError(f"--metric {one}: must be NAME=REGEX, as in 'acc=acc: ([0-9.]+)'")
        metrics[name] = regex
    try:
        check_metrics(metrics)
    except ValueError as error:
        raise ConfigError(f"--metric {error}") from None
    return metrics


def _tracking(store: str, uri: str | None, experiment: str) -> TrackingRecord:
    """Prepare MLflow for the runs of a store."""
    from vinedresser.cli.views.console import error_console
    from vinedresser.infra.catalog.stores import local_state
    from vinedresser.tasks.config.locations import store_in, tracking_uri_in
    from vinedresser.tasks.lifecycle.prepare import prepare_mlflow

    place = store_in(store, Path.cwd())
    found = tracking_uri_in(uri or None, Path.cwd(), local_state(place), "--tracking-uri")
    error_console.print(f"MLflow {masked_text(found)}", soft_wrap=True)
    return prepare_mlflow(place, found, experiment)


def _hosts(launcher: str, hosts: str, ranks: int, store: str) -> int | list[str]:
    """Return the number of the hosts or their names, checked."""
    from vinedresser.objects import parse_location
    from vinedresser.store.records.launchers import check_hosts, launcher_settings

    given: int | list[str] = int(hosts) if hosts.isdecimal() else hosts.split(",")
    try:
        check_hosts(launcher_settings(launcher), given, ranks)
    except ValueError as error:
        raise ConfigError(f"--{error}") from error
    if launcher != "local" and not isinstance(parse_location(store), Path):
        raise ConfigError(
            f"--launcher: {launcher} needs a store in a directory that all hosts share"
        )
    return given


def _other_environment(program: str) -> str | None:
    """Return the active virtual or conda environment if a script runs outside of it."""
    if program != "-m" and not program.endswith(".py"):
        return None
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    here = active is None or os.path.realpath(active) == os.path.realpath(sys.prefix)
    return None if here else active


def _place(store: str, name: str | None, script: Script, stem: str) -> RunPlace:
    """Prepare a run in STORE/NAME, or without a name in the first free of STORE/STEM-1, -2, ...."""
    from vinedresser.cli.views.console import error_console
    from vinedresser.objects import parse_location
    from vinedresser.store.records import name_fault
    from vinedresser.tasks.lifecycle.run_script import prepare_remote_script, prepare_script
    from vinedresser.tasks.places.remote_place import free_url

    def say(sentence: str) -> None:
        error_console.print(f"vinedresser: {sentence}", soft_wrap=True)

    if name is not None and (fault := name_fault(name)):
        raise ConfigError(f"--name: {fault}")
    location = parse_location(store)
    if not isinstance(location, Path):
        url = free_url(location, stem) if name is None else location / name
        return prepare_remote_script(url, script, say)
    # Not relative: MLflow names the directory to others.
    location = Path(os.path.abspath(location))
    number = 1
    while name is None and (location / f"{stem}-{number}").exists():
        number += 1
    return prepare_script(location / (name or f"{stem}-{number}"), script)


def code_of(ended: ScriptEnd) -> int:
    """Return the exit code of a training as a shell reports it: 128 + N after signal N.

    That of a script which chose it itself when it was stopped is the script's.
    """
    end = ended.record
    if end.stop is not None and end.stop.by == "rule":
        return _STOPPED_BY_RULE
    if end.stop is not None and (end.code is None or (ended.by_hook and end.code in _BY_HOOK)):
        return exit_code(128 + signal.SIGINT)
    if end.code is not None:
        return end.code
    return 128 + (signal.Signals[end.signal] if end.signal else signal.SIGKILL)
