"""Taking snapshots of a training, and what follows those of a broken step."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from vinedresser.capture.recording.alarms import Alarm
from vinedresser.capture.recording.loss_jumps import LossJump
from vinedresser.capture.recording.stopping import StopSignal
from vinedresser.errors import KeyTaken, StoreError
from vinedresser.objects import Storage
from vinedresser.snapshots.record import Reason, SnapshotRecord, processor
from vinedresser.snapshots.replay_options import replay_options
from vinedresser.snapshots.settings import SnapshotSettings
from vinedresser.snapshots.trees import Codec, Packer
from vinedresser.snapshots.writing import SnapshotFolder
from vinedresser.store.finding import Finding
from vinedresser.store.records import RunRecord, StopRecord, findings_key, write_record

__all__ = ["SnapshotSource", "SnapshotTaker"]

# Not the name of a group of rules, which is an identifier.
_GROUP = "trainer-guard"
# Seconds to wait for the supervisor's signal, which must not arrive after the hook has ended.
_PATIENCE = 2.0


class SnapshotSource(Protocol):
    """A watched model and its optimizers, as the contents of snapshots."""

    @property
    def codec(self) -> Codec:
        """What the framework adds to the types that can be stored."""

    def contents(self) -> dict[str, Any]:
        """Return state and inputs by name, as values that the codec can store."""

    def shared(self) -> dict[str, Any]:
        """Return what all models of the process share, such as random states."""

    def inexact(self) -> list[str]:
        """Return sentences on why a replay of the present step may differ."""

    def environment(self) -> dict[str, Any]:
        """Return what decides about the bits of a result, as plain JSON types."""


class SnapshotTaker:
    """Takes the snapshots of one process of a run.

    Args:
        settings: when to take them, and how many to keep.
        step: return the current train step.
        report: called with a sentence about a problem.
        signal: the training's request to stop.
        stop: end the training; raises `TrainingStopped`.
        guarding: whether non-finite gradients are looked for.
        location: location of the run for readers.
        launched: whether a supervisor watches the run for stop requests.
        info: return the run's record.

    Attributes:
        sources: the watched models by name; "" for one without a name.
        requested: a snapshot of the next step is wanted, besides the periodic ones.
    """

    def __init__(
        self,
        storage: Storage,
        settings: SnapshotSettings,
        *,
        step: Callable[[], int],
        report: Callable[[str], object],
        signal: StopSignal,
        stop: Callable[[], None],
        guarding: bool,
        location: str,
        rank: int,
        launched: bool,
        info: Callable[[], RunRecord],
    ) -> None:
        self.guarding = guarding
        self.sources: dict[str, SnapshotSource] = {}
        self.requested = False
        self._settings = settings
        self._folder = SnapshotFolder(storage, rank, settings)
        self._storage = storage
        self._step = step
        self._report = report
        self._signal = signal
        self._end = stop
        self._location = location
        self._rank = rank
        self._launched = launched
        self._info = info
        self._alarmed = False
        self._takes_jumps = True
        self._found: list[str] = []
        self._periodic = -1

    @property
    def alarmed(self) -> bool:
        """Whether non-finite gradients were found before; weights may be so since."""
        return self._alarmed

    @property
    def step(self) -> int:
        """The current train step."""
        return self._step()

    def due(self) -> bool:
        """Return whether a periodic snapshot of the current step is due and not taken yet."""
        every = self._settings.every
        wanted = self.requested or (bool(every) and self.step % every == 0)
        return wanted and self.step != self._periodic

    def take_periodic(self) -> None:
        """Take a periodic snapshot; report it if that fails."""
        self._periodic = self.step
        self.requested = False
        self._take("periodic")

    def alarm(self, alarm: Alarm) -> None:
        """Take a snapshot of non-finite gradients, record a finding, and stop if asked to.

        Args:
            alarm: what was seen.

        Raises:
            TrainingStopped: the settings say so.
        """
        finding = self.record(alarm)
        if self._settings.stop:
            self.stop(finding)

    @property
    def stopping(self) -> bool:
        """Whether the settings ask to stop before an update with non-finite gradients."""
        return self._settings.stop

    def record(self, alarm: Alarm) -> Finding:
        """Take a snapshot of non-finite gradients, and record and return a finding.

        Args:
            alarm: what was seen.
        """
        room = self._folder.has_room(self.step, "nonfinite")
        record = self._take("nonfinite") if room else None
        finding = self._finding(alarm, record)
        first, self._alarmed = not self._alarmed, True
        # Gradients are the same on all ranks: one finding is enough.
        if self._rank == 0 and (first or record is not None):
            self._note(finding)
        return finding

    def jumped(self, jump: LossJump) -> bool:
        """Take a snapshot of a step whose loss jumped, and record a finding; report a failure.

        Args:
            jump: what was seen.

        Returns:
            Whether there is a snapshot.
        """
        if not (self._takes_jumps and self._folder.has_room(self.step, "jump")):
            return False
        record = self._take("jump")
        if record is None:
            # A full store remains full, and copying the state for each jump takes long.
            self._takes_jumps = False
            return False
        where, again = self._again(record, "")
        self._note(
            Finding(
                rule="loss_jump",
                severity="info",
                step=self.step,
                since=self.step,
                mode="train",
                rank=self._rank,
                tensor=jump.name,
                statistic="value",
                value=jump.value,
                threshold=jump.limit,
                confidence=1.0,
                seen=jump.seen(self.step),
                cause="an unusual batch, a step that was too large, or an error of the machine",
                remedy=f"{again}; it says whether the same batch has that loss again",
                evidence={"snapshot": where},
            )
        )
        return True

    def _note(self, finding: Finding) -> None:
        """Record a finding of this rank."""
        self._found.append(json.dumps(finding.to_json()))
        # If the storage fails, the writer says so.
        with suppress(StoreError):
            text = "".join(f"{line}\n" for line in self._found)
            group = f"{_GROUP}-{self._rank}" if self._rank else _GROUP
            self._storage.put(findings_key(group), [text.encode()])

    def _take(self, reason: Reason) -> SnapshotRecord | None:
        """Take a snapshot; report why and return None if that fails."""
        source = next(iter(self.sources.values()))
        packer = Packer(source.codec)
        models = {name: one.contents() for name, one in self.sources.items()}
        contents = {
            "models": packer.pack(models, "models"),
            "shared": packer.pack(source.shared(), "shared"),
        }
        info = self._info()
        record = SnapshotRecord(
            step=self.step,
            rank=self._rank,
            reason=reason,
            time=time.time(),
            run=info.id,
            framework=info.framework or "torch",
            versions=info.versions,
            environment={"processor": processor(), **source.environment()},
            code=info.code,
            world_size=info.world_size,
            bytes=0,
            sha256="",
            contents=contents,
            left_out=packer.left_out,
            inexact=[one for each in self.sources.values() for one in each.inexact()],
        )
        try:
            return self._folder.write(record, packer.tensors)
        except StoreError as error:
            self._report(f"no snapshot of step {self.step}: {error}")
            return None

    def _finding(self, alarm: Alarm, record: SnapshotRecord | None) -> Finding:
        name, number = alarm.tensors[-1]
        where, again = "", "look at an earlier snapshot: vinedresser snapshots"
        if record:
            where, again = self._again(record, alarm.factory)
        return Finding(
            rule="nonfinite_gradient",
            severity="stop" if self._settings.stop else "warning",
            step=self.step,
            since=self.step,
            mode="train",
            rank=self._rank,
            tensor=name,
            statistic="nonfinite",
            value=float(number),
            threshold=0.0,
            confidence=1.0,
            seen=alarm.seen,
            cause=alarm.cause,
            remedy=f"{again}; it names {alarm.names}",
            evidence={"all": [one for one, _ in alarm.tensors][:20], "snapshot": where},
            fault="nonfinite",
        )

    def _again(self, record: SnapshotRecord, factory: str) -> tuple[str, str]:
        """Return the location of a snapshot, and how to run its step again."""
        where = f"{self._location}/{SnapshotRecord.KEY}/{record.name}"
        options = replay_options(
            record.framework,
            self._info().command,
            factory=factory,
            world_size=record.world_size,
            own_loop=record.of_own_loop,
        )
        return where, f"run the step again: vinedresser replay {shlex.join([where, *options])}"

    def stop(self, finding: Finding) -> None:
        """End the training before its update.

        Raises:
            TrainingStopped: always.
        """
        stop = StopRecord(
            by="rule",
            reason=finding.seen,
            time=time.time(),
            rule=finding.rule,
            step=finding.step,
            finding=finding.to_json(),
        )
        with suppress(KeyTaken):
            write_record(self._storage, stop, exclusive=True)
        if self._launched:
            # The signal must not arrive later, outside of the hook.
            deadline = time.monotonic() + _PATIENCE
            while not self._signal.requested and time.monotonic() < deadline:
                time.sleep(0.005)
        self._signal.requested = True
        self._end()
