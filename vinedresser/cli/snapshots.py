"""Commands about snapshots: list those of a run, and run the step of one again."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vinedresser.cli.options import RunArgument, check_number
from vinedresser.errors import ConfigError, NotARun, UntrustedTracking
from vinedresser.objects.location import is_remote

if TYPE_CHECKING:
    from vinedresser.replay.what_if.results import WhatIf
    from vinedresser.snapshots.reading import Snapshot
    from vinedresser.snapshots.replay_record import ReplayRecord

__all__ = ["replay", "snapshots"]


def snapshots(run: RunArgument) -> None:
    """List the snapshots of a run."""
    from vinedresser.cli.views.console import console, error_console, say
    from vinedresser.cli.views.replay import snapshot_table
    from vinedresser.objects import open_storage
    from vinedresser.snapshots.reading import list_snapshots
    from vinedresser.snapshots.replay_record import read_replay
    from vinedresser.store.records import RunRecord

    storage = open_storage(run)
    if not storage.exists(RunRecord.KEY):
        raise NotARun(f"{run}: not a run: it has no {RunRecord.KEY}")
    faults: list[str] = []
    found = list_snapshots(storage, faults)
    if not found:
        console.print(f"{run}: no snapshots", soft_wrap=True, markup=False)
    else:
        console.print(snapshot_table(found))
    for one in found:
        replayed = read_replay(storage, one.name, faults)
        for sentence in [] if replayed is None else replayed.sentences:
            say(f"{one.name}: {sentence}")
    for fault in faults:
        error_console.print(f"vinedresser: {fault}", soft_wrap=True, markup=False)


_DIFFERS = 1
# The keys of `vinedresser.replay.wider.WIDER`, which needs torch.
_WIDER = ("float32", "float64")


def replay(
    snapshot: Annotated[
        str, typer.Argument(metavar="SNAPSHOT", help="RUN/snapshots/step-N, or its URL on S3.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="Arguments of the script, after --."),
    ] = None,
    *,
    script: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The script that trained, which runs up to its first update; its arguments "
            "follow after --.",
        ),
    ] = None,
    factory: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Function that returns the model, and a loss module or a step function; for "
            "XGBoost, the custom objective itself.",
        ),
    ] = None,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Find the samples that break the step.")
    ] = False,
    locate: Annotated[
        bool, typer.Option("--locate", help="Find the operation that breaks the step.")
    ] = False,
    what_if: Annotated[
        bool,
        typer.Option("--what-if", help="Continue from the step with one thing changed each time."),
    ] = False,
    steps: Annotated[int, typer.Option(min=10, help="With --what-if: number of steps.")] = 200,
    seconds: Annotated[
        float,
        typer.Option(
            min=0.1, callback=check_number, help="With --what-if: time for all trials, in seconds."
        ),
    ] = 60.0,
    dtype: Annotated[
        str | None,
        typer.Option(help="Also run it in this precision, float32 or float64: is that the cause?"),
    ] = None,
    split: Annotated[
        int | None,
        typer.Option(min=2, help="Only run it in this number of parts, for a smaller device."),
    ] = None,
    eager: Annotated[
        bool, typer.Option("--eager", help="Run compiled code and graphs as they are written.")
    ] = False,
    inject: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Only give its batch to this running training, which computes its loss and "
            "gradients without an update.",
        ),
    ] = None,
    save: Annotated[
        bool,
        typer.Option("--save", help="Save the result beside the snapshot, and in the report."),
    ] = False,
) -> None:
    """Run the step of a snapshot again, and compare it bit for bit.

    The exit code is 1 if it computes something else than in the training.
    """
    from vinedresser.snapshots.reading import open_snapshot

    opened = open_snapshot(snapshot)
    needing_torch = {"--what-if": what_if, "--dtype": dtype, "--split": split}
    beside_split = {"--bisect": bisect, "--locate": locate, "--what-if": what_if, "--save": save}
    if inject is not None:
        others = {"--script": script, "--factory": factory, "--eager": eager, "ARGS": arguments}
        _inject(opened, inject, needing_torch | beside_split | others)
        return
    _check(
        opened,
        needing_torch,
        beside_split | {"--dtype": dtype} if split else {},
        dtype,
        locate=locate,
        eager=eager,
    )
    source = _source(opened, factory, script, arguments or [])
    from vinedresser.replay.choosing import stepping_of

    stepping = stepping_of(opened.record.framework, snapshot, factory, script)
    if split is not None:
        _replay_split(opened, source, split, eager=eager)
        return
    from vinedresser.cli.views.replay import (
        print_bisection,
        print_located,
        print_notes,
        print_replayed,
    )
    from vinedresser.replay.origins import with_origins
    from vinedresser.replay.recording import replay_record

    run = partial(stepping.replay, **({"eager": True} if eager else {}))
    replayed = run(opened, source)
    outcome = replayed.outcome
    print_replayed(opened.record, replayed.comparison, outcome.losses, outcome.nonfinite)
    if script is not None:
        print_notes(replayed.notes, exact=replayed.comparison.exact)
    lasting = _lasting(opened, replayed, lambda one: run(one, source))
    operation = samples = tried = None
    if dtype is not None:
        _run_wider(replayed, dtype, in_script=script is not None)
    if locate:
        operation, inputs = stepping.locate(replayed)
        print_located(operation, inputs, broken=outcome.broken)
    if bisect:
        samples = with_origins(stepping.bisect(replayed), opened)
        print_bisection(samples, partial(stepping.sample, replayed), broken=outcome.broken)
    if what_if:
        tried = _try_changes(replayed, steps, seconds, in_script=script is not None)
    if save:
        _save(opened, replay_record(replayed.comparison, operation, samples, tried, lasting))
    if not replayed.comparison.exact:
        raise typer.Exit(_DIFFERS)


def _check(
    opened: Snapshot,
    needing_torch: dict[str, Any],
    beside_split: dict[str, Any],
    dtype: str | None,
    *,
    locate: bool,
    eager: bool,
) -> None:
    """Refuse options that do not fit the snapshot or each other.

    Args:
        needing_torch: values of the options for torch only, by name.
        beside_split: values of the options that do not go with --split.
        dtype: value of --dtype.
    """
    framework = opened.record.framework
    for option, value in needing_torch.items():
        if value and framework != "torch":
            raise ConfigError(
                f"{opened.location}: {option} needs a snapshot of torch, not of {framework}"
            )
    if framework == "xgboost" and (locate or eager):
        raise ConfigError(
            f"{opened.location}: --locate and --eager are about tensors of torch and TensorFlow, "
            "not the arrays of an objective; use --bisect, which finds the rows"
        )
    for option, value in beside_split.items():
        if value:
            raise ConfigError(f"{option}: not with --split, which runs the step in parts only")
    if dtype is not None and dtype not in _WIDER:
        raise ConfigError(f"--dtype {dtype}: must be {' or '.join(_WIDER)}")


def _inject(opened: Snapshot, run: str, others: dict[str, Any]) -> None:
    """Give the batch of a snapshot to a running training, and print what it computes.

    Args:
        run: the running training.
        others: values of the other options, by name; all are about a replay.
    """
    for option, value in others.items():
        if value:
            raise ConfigError(f"{option}: not with --inject, which replays nothing here")
    from vinedresser.cli.live.steering import PATIENCE, send_request
    from vinedresser.snapshots.record import SnapshotRecord

    # The training may have another working directory.
    store = opened.storage.location
    place = store if is_remote(store) else os.path.abspath(store)
    where = f"{place}/{SnapshotRecord.KEY}/{opened.record.name}"
    send_request(run, "inject", PATIENCE, snapshot=where)


def _source(
    opened: Snapshot,
    factory: str | None,
    script: str | None,
    arguments: list[str],
) -> str | list[str] | None:
    """Return what builds the step again: a factory, or a script with its arguments."""
    if script is None:
        if arguments:
            raise ConfigError(f"{arguments[0]}: arguments belong to a script; add --script FILE")
        return factory
    if factory is not None:
        raise ConfigError("--script: not with --factory; one of them builds the step")
    if opened.record.framework == "xgboost":
        raise ConfigError(
            f"{opened.location}: --script needs a snapshot of torch or Keras, not of xgboost; use "
            "--factory"
        )
    return [script, *arguments]


def _run_wider(replayed: Any, dtype: str, *, in_script: bool) -> None:
    """Run the step in a wider precision, and print what follows."""
    from vinedresser.cli.views.replay import print_wider
    from vinedresser.replay.script import stepping
    from vinedresser.replay.wider import run_wider

    run = stepping.run_wider if in_script else run_wider
    print_wider(run(replayed, dtype))


def _try_changes(replayed: Any, steps: int, seconds: float, *, in_script: bool) -> WhatIf:
    """Try changes, print them, and return the result."""
    from vinedresser.cli.views.replay import print_what_if
    from vinedresser.replay.script import trials
    from vinedresser.replay.what_if.trying import what_if

    run = trials.what_if if in_script else what_if
    tried = run(replayed, steps=steps, seconds=seconds)
    print_what_if(tried)
    return tried


def _replay_split(
    opened: Snapshot, source: str | list[str] | None, number: int, *, eager: bool
) -> None:
    """Run a step in parts, and print what they compute.

    Raises:
        ConfigError: the samples cannot be told apart, or the factory builds something else.
        typer.Exit: the loss is not that of the training.
    """
    from vinedresser.cli.views.replay import print_split
    from vinedresser.replay.script import stepping
    from vinedresser.replay.splitting import run_split
    from vinedresser.replay.stepping import prepared

    if isinstance(source, list):
        found = stepping.run_split(opened, source, number, eager=eager)
    else:
        found = run_split(prepared(opened, source or "", eager=eager), number)
    print_split(opened.record, found)
    if found.same is False:
        raise typer.Exit(_DIFFERS)


def _lasting(opened: Snapshot, replayed: Any, run: Callable[[Snapshot], Any]) -> str:
    """Print and return whether what was wrong with a step of torch lasts.

    Raises:
        VinedresserError: a step cannot be run again.
    """
    from vinedresser.cli.views.console import say
    from vinedresser.replay.lasting import conclusion, run_again

    record = opened.record
    if record.framework != "torch" or record.reason == "periodic":
        return ""
    found = conclusion(run_again(opened, replayed, run), record.world_size, record.reason)
    say(f"  {found}")
    return found


def _save(opened: Snapshot, found: ReplayRecord) -> None:
    """Save what a replay found beside the snapshot, and show it in the report of an ended run.

    Raises:
        StoreError: the storage refused.
        TrackingError: MLflow's database or server refused or is unavailable.
    """
    from vinedresser.cli.views.console import say
    from vinedresser.objects import parse_location
    from vinedresser.snapshots.replay_record import replay_key, save_replay
    from vinedresser.store.status import run_status
    from vinedresser.tasks.lifecycle.settle import renew_report

    storage, name = opened.storage, opened.record.name
    save_replay(storage, name, found)
    say(f"saved: {storage.location}/{replay_key(name)}")
    if run_status(storage).over:
        try:
            renew_report(parse_location(storage.location))
        except UntrustedTracking as error:
            # Such as that of a run from another machine.
            say(f"not sent to MLflow: {error}")
