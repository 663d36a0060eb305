"""The machinery behind a hook: from what an adapter sees to what the writer gets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.recording.recorder import Recorder
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.stopping import StopSignal
from vinedresser.capture.recording.tensor_copier import TensorCopier
from vinedresser.capture.recording.unmatched import Unmatched
from vinedresser.capture.shield import Shield
from vinedresser.store.step_record import ScalarStep, StepRecord
from vinedresser.store.storage import Storage
from vinedresser.store.writing.record_queue import QueuePolicy
from vinedresser.store.writing.writer import RunWriter

__all__ = ["Session"]

K = TypeVar("K", bound=TensorCopier)


class Session:
    """One run being captured.

    Args:
        storage: the run's.
        rank: of this process.
        config: what is captured.
        policy: what happens when the writer cannot keep up: "block" or "drop".
        names: returns the names of all tensors that there are to capture.
        stop: ends the training; called between two steps when SIGTERM has asked for it.
        look: called about every second on the writer's thread.
        describe: completes the run's record with how the training is set up.

    Attributes:
        leader: the adapter whose steps are the run's; None as long as none has shown a step.
        shield: every callback of the training goes through it.
        recorder: which step or evaluation is going on.
        signal: whether the training was asked to end.
        newly_set_up: more is known of how the training is set up than the run's record says; it
            is told before the next train step is handed over.
        between_steps: what is to be done when the train step that goes on has ended; None where
            there is nothing. Any thread may set it.

    Raises:
        SecondWriter: this rank has committed segments already.
        StoreError: the storage refused.
    """

    def __init__(
        self,
        storage: Storage,
        rank: int,
        config: CaptureConfig,
        policy: QueuePolicy,
        *,
        names: Callable[[], list[str]],
        stop: Callable[[], None],
        look: Callable[[], None],
        describe: Callable[[], None],
    ) -> None:
        self.shield = Shield()
        # What updates the weights may show only in the first step.
        self.newly_set_up = True
        self._describe = self.shield.guard("describing the training", describe)
        self.leader: object | None = None
        self.between_steps: Callable[[], object] | None = None
        config = self.guarded(config)
        guard = self.shield.guard
        self.recorder = Recorder(
            config,
            guard("handing over a step", self._deliver),
            guard("handing over a step", self._deliver_plain),
        )
        self.signal = StopSignal()
        self._stop = stop
        self._unmatched = Unmatched(names)
        self._unmatched.expect(config.collections.values())
        self._copiers: dict[type[TensorCopier], TensorCopier] = {}
        self._copiers_lock = threading.Lock()
        self._writer = RunWriter(
            storage,
            rank,
            policy=policy,
            on_problem=self._on_problem,
            on_release=self._release,
            on_beat=self.shield.guard("looking for capture requests", look),
        )

    def guarded(self, config: CaptureConfig) -> CaptureConfig:
        """Return a config whose predicates cannot harm the training."""
        return config.guarded(self.shield.guard)

    def configure(self, config: CaptureConfig) -> None:
        """Capture by another config from now on; for before the first step."""
        self._unmatched.expect(config.collections.values())
        self.recorder.configure(self.guarded(config))

    def reconfigure(self, config: CaptureConfig, steps: int | None = None) -> None:
        """Capture by another config, whose predicates are guarded, from the next step on.

        Args:
            config: what is captured.
            steps: for how many train steps; None: for good.
        """
        self._unmatched.expect(config.collections.values())
        self.recorder.reconfigure(config, steps)

    def copier(self, kind: type[K]) -> K:
        """Return this session's copier of a kind."""
        found = self._copiers.get(kind)
        if found is None:
            with self._copiers_lock:
                found = self._copiers[kind] = kind()
        assert isinstance(found, kind)
        return found

    def step_ended(self) -> None:
        """End the train step.

        Raises:
            TrainingStopped: the training was asked to end.
        """
        self.recorder.end_train_step()
        self._writer.last_step = self.recorder.steps - 1
        if self.between_steps is not None:
            wanted, self.between_steps = self.between_steps, None
            wanted()
        self.stop_if_asked()

    def stop_if_asked(self) -> None:
        """End the training if it was asked to end; called where it can end.

        Raises:
            TrainingStopped: it was.
        """
        if self.signal.requested:
            self._stop()

    def flush(self, timeout: float | None) -> bool:
        """Wait until all that was handed over is stored; return False when that took too long."""
        return self._writer.flush(timeout)

    def close(self) -> None:
        """Hand over what is still open, and wait until all is stored."""
        self.recorder.close()
        if self.newly_set_up and self.recorder.steps:
            self._describe()
        self._writer.close()
        self.signal.restore()

    def _deliver(self, recording: Recording) -> None:
        for copier in self._copiers.values():
            copier.finish(recording)
        for complaint in self._unmatched.complaints(recording):
            self.shield.report(complaint)
        if recording.empty:
            return
        if self.newly_set_up and recording.mode == "train":
            self.newly_set_up = False
            self._describe()
        record = recording.to_record()
        if not self._writer.add(record):
            self._release(record)
        # Values told after the last step travel under a number that no step has.
        self._writer.last_step = self.recorder.steps - 1

    def _deliver_plain(self, step: int, scalars: dict[str, float]) -> None:
        if self.newly_set_up:
            self.newly_set_up = False
            self._describe()
        self._writer.add_scalars(ScalarStep(step, time.time(), scalars))

    def _release(self, record: StepRecord) -> None:
        with self._copiers_lock:
            copiers = list(self._copiers.values())
        for copier in copiers:
            copier.release(record)

    def _on_problem(self, problem: str) -> None:
        self.shield.report(f"{problem}; training goes on")
