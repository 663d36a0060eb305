"""`vinedresser snapshots` and `replay`: list the snapshots of a run, run the step of one again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vinedresser.cli.options import RunArgument
from vinedresser.errors import ConfigError, NotARun, UntrustedTracking

if TYPE_CHECKING:
    from vinedresser.snapshots.reading import Snapshot
    from vinedresser.snapshots.replay_record import ReplayRecord

__all__ = ["replay", "snapshots"]

_DIFFERS = 1


def snapshots(run: RunArgument) -> None:
    """List the snapshots of a run."""
    from vinedresser.cli.views.console import console, error_console, say
    from vinedresser.cli.views.snapshots import snapshot_table
    from vinedresser.snapshots.reading import list_snapshots
    from vinedresser.snapshots.replay_record import read_replay
    from vinedresser.store.records import RunRecord
    from vinedresser.store.storage import open_storage

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


def replay(
    snapshot: Annotated[
        str, typer.Argument(metavar="SNAPSHOT", help="RUN/snapshots/step-N, or its URL on S3.")
    ],
    *,
    factory: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Function that returns the model, and a loss module or a step function.",
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
        float, typer.Option(min=0.1, help="With --what-if: time for all trials, in seconds.")
    ] = 60.0,
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
    from vinedresser.cli.views.replay import print_bisection, print_located, print_replayed
    from vinedresser.replay.recording import replay_record

    if what_if and opened.record.framework != "torch":
        raise ConfigError(
            f"{snapshot}: --what-if needs a snapshot of torch, not of {opened.record.framework}"
        )
    stepping = _stepping(opened.record.framework, snapshot, factory)
    replayed = stepping.replay(opened, factory)
    outcome = replayed.outcome
    print_replayed(opened.record, replayed.comparison, outcome.losses, outcome.nonfinite)
    operation = samples = tried = None
    if locate:
        operation, inputs = stepping.locate(replayed)
        print_located(operation, inputs, broken=outcome.broken)
    if bisect:
        samples = stepping.bisect(replayed)
        print_bisection(samples, partial(stepping.sample, replayed))
    if what_if:
        from vinedresser.cli.views.what_if import print_what_if
        from vinedresser.replay.what_if.trying import what_if as try_changes

        tried = try_changes(replayed, steps=steps, seconds=seconds)
        print_what_if(tried)
    if save:
        _save(opened, replay_record(replayed.comparison, operation, samples, tried))
    if not replayed.comparison.exact:
        raise typer.Exit(_DIFFERS)


def _save(opened: Snapshot, found: ReplayRecord) -> None:
    """Save what a replay found beside the snapshot, and show it in the report of an ended run.

    Raises:
        StoreError: the storage refused.
        TrackingError: MLflow's database or server refused or is unavailable.
    """
    from vinedresser.cli.views.console import say
    from vinedresser.snapshots.replay_record import replay_key, save_replay
    from vinedresser.store.status import run_status
    from vinedresser.store.storage import parse_location
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


def _stepping(framework: str, snapshot: str, factory: str | None) -> Any:
    """Return the module that replays steps of a framework.

    Raises:
        ConfigError: the factory is missing.
    """
    if framework == "keras":
        from vinedresser.replay.keras_ import stepping as keras_stepping
        from vinedresser.replay.keras_.factory import NEEDED as KERAS_NEEDED

        if factory is None:
            raise ConfigError(f"{snapshot}: {KERAS_NEEDED}")
        return keras_stepping
    from vinedresser.replay import stepping
    from vinedresser.replay.factory import NEEDED

    if factory is None:
        raise ConfigError(f"{snapshot}: {NEEDED}")
    return stepping
