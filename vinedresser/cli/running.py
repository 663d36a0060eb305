"""`vinedresser run`: run one unchanged script under supervision."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vinedresser.cli.interrupts import interrupts_stop
from vinedresser.cli.options import (
    DEFAULT_STORE,
    CollectionOption,
    PresetOption,
    RuleOption,
    selected_rules,
    tables,
)

if TYPE_CHECKING:
    from vinedresser.store.records import ExitRecord
    from vinedresser.store.storage import StoreUrl

__all__ = ["run"]

_STOPPED_BY_RULE = 3


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
    attach: Annotated[
        bool, typer.Option("--attach/--no-attach", help="Capture trainings without a hook.")
    ] = True,
    steps: Annotated[int | None, typer.Option(help="Total number of steps, if known.")] = None,
) -> None:
    """Run one unchanged training script under supervision.

    The training is captured in STORE/NAME. Output and exit code are those of the script; the exit
    code is 3 if a rule stopped it.
    """
    from vinedresser.store.storage import parse_location
    from vinedresser.tasks.lifecycle.run_script import (
        prepare_script,
        run_name,
        run_script,
        training_seen,
    )

    prepare = partial(
        prepare_script,
        command=command,
        rules=selected_rules(preset, rule),
        collections=tables("--collection", collection),
        attach=attach,
        total_steps=steps,
    )
    location = parse_location(store)
    if not isinstance(location, Path):
        stem = name or run_name(command)
        sys.exit(_run_remote(location, stem, prepare, numbered=name is None, attach=attach))
    directory = _free_directory(location, name, run_name(command))
    prepare(directory)
    with interrupts_stop([directory]):
        end = run_script(directory)
    from vinedresser.capture.attach.launching import additional_runs
    from vinedresser.cli.views.console import error_console
    from vinedresser.cli.views.results import print_no_training, print_result
    from vinedresser.tasks.lifecycle.run_result import run_result

    for one in [directory, *additional_runs(directory)]:
        print_result(run_result(one), to=error_console)
    if attach and end.cause == "finished" and not training_seen(directory):
        print_no_training(error_console)
    sys.exit(_exit_code(end))


def _run_remote(
    store: StoreUrl, name: str, prepare: Callable[..., None], *, numbered: bool, attach: bool
) -> int:
    """Run a script with an object store as its store; return the exit code."""
    from vinedresser.cli.views.console import error_console
    from vinedresser.cli.views.results import print_no_training, print_result
    from vinedresser.tasks.lifecycle.run_result import run_result
    from vinedresser.tasks.places.remote_place import free_url
    from vinedresser.tasks.places.remote_script import RemoteScript

    def say(sentence: str) -> None:
        error_console.print(f"vinedresser: {sentence}", soft_wrap=True, markup=False)

    url = free_url(store, name) if numbered else store / name
    script = RemoteScript(url, say)
    script.prepare(partial(prepare, name=url.name))
    with interrupts_stop([script.directory]):
        end = script.run()
    for one in script.uploaded:
        print_result(run_result(one), to=error_console)
    if attach and end.cause == "finished" and not script.seen:
        print_no_training(error_console)
    return _exit_code(end)


def _free_directory(store: Path, name: str | None, stem: str) -> Path:
    """Return STORE/NAME, or without a name the first free one of STORE/STEM-1, -2 and so on."""
    if name is not None:
        return store / name
    number = 1
    while (store / f"{stem}-{number}").exists():
        number += 1
    return store / f"{stem}-{number}"


def _exit_code(end: ExitRecord) -> int:
    """Return the exit code of a training as a shell reports it: 128 + N after signal N."""
    if end.stop is not None:
        return _STOPPED_BY_RULE if end.stop.by == "rule" else 128 + signal.SIGINT
    if end.code is not None:
        return end.code
    return 128 + (signal.Signals[end.signal] if end.signal else signal.SIGKILL)
