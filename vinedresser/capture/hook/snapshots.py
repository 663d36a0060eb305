"""The snapshots of a hook's training."""

from __future__ import annotations

from dataclasses import replace

from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.snapshot_taker import SnapshotTaker
from vinedresser.capture.run.opening import OpenedRun
from vinedresser.snapshots.settings import SnapshotSettings, check_guard

_DEFAULT = "off"


def snapshot_taker(
    run: OpenedRun,
    session: Session,
    rank: int,
    guard: str | None,
    settings: SnapshotSettings | None,
) -> SnapshotTaker | None:
    """Return what takes the snapshots of a training, or None if there will be none.

    Args:
        run: the run, whose record is used where the hook has no setting.
        guard: see `Hook`.
        settings: see `Hook`.

    Raises:
        ConfigError: a setting is invalid.
    """
    chosen = check_guard(guard or run.record.guard or _DEFAULT)
    kept = settings or SnapshotSettings.from_json(run.record.snapshots)
    run.record = replace(run.record, guard=chosen, snapshots=kept.to_json())
    if chosen == "off" and not kept.every:
        return None
    return SnapshotTaker(
        run.storage,
        kept,
        step=lambda: session.recorder.steps,
        report=session.shield.report,
        signal=session.signal,
        stop=session.stop_if_asked,
        guarding=chosen != "off",
        location=run.location,
        rank=rank,
        launched=run.launched,
        info=lambda: run.record,
    )
