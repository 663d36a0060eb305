"""`vinedresser run`: one script, as it is, under supervision."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated

import typer

from vinedresser.cli.interrupts import interrupts_stop
from vinedresser.cli.options import (
    DEFAULT_STORE,
    CollectionOption,
    PresetOption,
    RuleOption,
    rules_asked_for,
    tables,
)
from vinedresser.cli.views.nothing_seen import print_nothing_seen

if TYPE_CHECKING:
    from vinedresser.store.records import ExitRecord

__all__ = ["run"]

_STOPPED_BY_RULE = 3


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="SCRIPT [ARGS]...",
            help="A Python script, or -m and a module, or any program, and its arguments.",
        ),
    ],
    *,
    store: Annotated[
        str, typer.Option(help="Directory that gets the run directory, or s3://bucket/prefix.")
    ] = str(DEFAULT_STORE),
    name: Annotated[str | None, typer.Option(help="Name of the run.")] = None,
    preset: PresetOption = None,
    rule: RuleOption = None,
    collection: CollectionOption = None,
    attach: Annotated[
        bool, typer.Option("--attach/--no-attach", help="Capture what has no hook of its own.")
    ] = True,
    steps: Annotated[int | None, typer.Option(help="Steps of the whole run, if known.")] = None,
) -> None:
    """Run one training script, as it is, under supervision.

    What it trains is captured in STORE/NAME; its output and exit code are passed on. The exit code
    is 3 when a rule stopped it.
    """
    from vinedresser.store.storage.location import is_remote
    from vinedresser.tasks.lifecycle.run_script import (
        prepare_script,
        run_name,
        run_script,
        training_seen,
    )

    prepare = partial(
        prepare_script,
        command=command,
        rules=rules_asked_for(preset, rule),
        collections=tables("--collection", collection),
        attach=attach,
        total_steps=steps,
    )
    if is_remote(store):
        stem = name or run_name(command)
        sys.exit(_run_remote(store, stem, prepare, numbered=name is None, attach=attach))
    directory = _free_directory(Path(store), name, run_name(command))
    prepare(directory)
    with interrupts_stop([directory]):
        end = run_script(directory)
    from vinedresser.capture.attach.launching import additional_runs
    from vinedresser.cli.views.terminal import error_console, print_result
    from vinedresser.tasks.lifecycle.run_result import run_result

    for one in [directory, *additional_runs(directory)]:
        print_result(run_result(one), to=error_console)
    if attach and end.cause == "finished" and not training_seen(directory):
        print_nothing_seen(error_console)
    sys.exit(_exit_code(end))


def _run_remote(
    store: str, name: str, prepare: Callable[..., None], *, numbered: bool, attach: bool
) -> int:
    """Run a script whose run lies on an object store; return the exit code."""
    from vinedresser.cli.views.terminal import error_console, print_result
    from vinedresser.tasks.lifecycle.run_result import run_result
    from vinedresser.tasks.places.remote_place import free_url
    from vinedresser.tasks.places.remote_script import RemoteScript

    def say(sentence: str) -> None:
        error_console.print(f"vinedresser: {sentence}", soft_wrap=True, markup=False)

    url = free_url(store, name) if numbered else f"{store.rstrip('/')}/{name}"
    script = RemoteScript(url, say)
    script.prepare(partial(prepare, name=PurePath(url).name))
    with interrupts_stop([script.directory]):
        end = script.run()
    for one in script.uploaded:
        print_result(run_result(one), to=error_console)
    if attach and end.cause == "finished" and not script.seen:
        print_nothing_seen(error_console)
    return _exit_code(end)


def _free_directory(store: Path, name: str | None, stem: str) -> Path:
    """Return STORE/NAME, or the first free of STORE/STEM-1, -2 and so on."""
    if name is not None:
        return store / name
    number = 1
    while (store / f"{stem}-{number}").exists():
        number += 1
    return store / f"{stem}-{number}"


def _exit_code(end: ExitRecord) -> int:
    """Return a training's exit code, as a shell would give it: 128 + N after signal N."""
    if end.stop is not None:
        return _STOPPED_BY_RULE if end.stop["by"] == "rule" else 128 + signal.SIGINT
    if end.code is not None:
        return end.code
    return 128 + (signal.Signals[end.signal] if end.signal else signal.SIGKILL)
