"""The snapshots of a run in its report."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from vinedresser.snapshots.reading import list_snapshots
from vinedresser.snapshots.record import REASONS, SnapshotRecord
from vinedresser.snapshots.replay_options import replay_options
from vinedresser.snapshots.replay_record import ReplayRecord, TriedChange, read_replay
from vinedresser.store.reading.reader import Run

__all__ = ["ShownSnapshot", "shown_snapshots"]

_FURTHER = ("--save",)


@dataclass(frozen=True)
class ShownSnapshot:
    """A snapshot in a report.

    Attributes:
        record: its record.
        replay: what replays found; None if nothing was saved.
        command: the command that runs it again.
    """

    record: SnapshotRecord
    replay: ReplayRecord | None
    command: str

    @property
    def reason(self) -> str:
        """Why it was taken, in words."""
        return REASONS[self.record.reason]

    @property
    def size(self) -> str:
        """Size of its tensors in words."""
        return f"{self.record.bytes / 2**20:.1f} MiB"

    @property
    def trials(self) -> list[TriedChange]:
        """The changes that were tried."""
        return [TriedChange.from_json(trial) for trial in self.replay.trials] if self.replay else []


def shown_snapshots(run: Run, faults: list[str]) -> list[ShownSnapshot]:
    """Return the snapshots of a run, by step and rank.

    Args:
        faults: receives one sentence for each damaged record.

    Raises:
        StoreError: the storage refused.
    """
    return [
        ShownSnapshot(
            snapshot,
            read_replay(run.storage, snapshot.name, faults),
            shlex.join(
                [
                    *("vinedresser", "replay", f"{run.path}/{SnapshotRecord.KEY}/{snapshot.name}"),
                    *replay_options(
                        snapshot.framework,
                        run.info.command,
                        _FURTHER,
                        world_size=snapshot.world_size,
                        own_loop=snapshot.of_own_loop,
                    ),
                ]
            ),
        )
        for snapshot in list_snapshots(run.storage, faults)
    ]
