"""The session of a hook: delivers what adapters capture to the writer."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.recording.budget import CaptureBudget
from vinedresser.capture.recording.data_report import DataReport
from vinedresser.capture.recording.joint_stop import JointStop
from vinedresser.capture.recording.recorder import Recorder
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.snapshot_taker import SnapshotTaker
from vinedresser.capture.recording.stopping import StopSignal
from vinedresser.capture.recording.tensor_copier import TensorCopier
from vinedresser.capture.shield import Shield
from vinedresser.errors import did_you_mean
from vinedresser.objects import Storage
from vinedresser.store.collections.collection import BUILT_IN, Collection
from vinedresser.store.collections.modules import module_of
from vinedresser.store.step_record import ScalarStep, StepRecord
from vinedresser.store.writing.record_queue import QueuePolicy
from vinedresser.store.writing.writer import RunWriter

K = TypeVar("K", bound=TensorCopier)
S = TypeVar("S")
# Collections of built-in rules for values that not every training has.
_OF_SOME_TRAININGS = (
    *("learning_rate", "loss_scale", "scheduler"),
    *("rank_data", "rank_gradients", "rank_gradient_norms", "replicas", "synchronised_statistics"),
)


class Session:
    """The capture of one run.

    Args:
        config: collections to capture.
        policy: what to do when the writer cannot keep up: "block" or "drop".
        names: return the names of all tensors available for capture.
        stop: end the training; called between two steps after SIGTERM.
        look: called about once a second on the writer's thread.
        budget: share of the time for captures that rules need; 1: no limit.
        describe: complete the run's record with the training's setup.

    Attributes:
        leader: adapter whose steps are the run's steps; None before the first step.
        detected: whether the training was detected in a script without a hook, in which nobody has
            given the order of its optimizers, and which advice must not ask to change.
        keeps_model: whether the model is saved when the training is over, for which adapters must
            not let go of it.
        shield: guards all callbacks of the training.
        recorder: the current train step or evaluation.
        budget: keeps to that share.
        signal: whether the training was asked to stop.
        joint_stop: the step after which all ranks stop; None: this process stops by itself.
        newly_set_up: the training's setup is not yet complete in the run's record; it is written
            before the next train step is delivered.
        losses_reported: whether the script passes losses to the hook.
        between_steps: called once at the end of the current train step; None: nothing to do. Any
            thread may set it.
        collective: returns the collective operation in which this rank is, in words, given the
            number of finished steps; called about once a second; None: it is not known.
        each_step: called at the end of each train step with the number of finished steps.
        classes: names of the classes in the order of their labels; []: unknown.
        boosted: returns which classes were boosted before a resumption, see `RunRecord`.
        snapshots: takes snapshots of the training; None: nobody wants any.
        batch_takers: for each watched model that can be given the batch of a snapshot, a function
            that receives the snapshot's location and returns what the batch gives, in words.

    Raises:
        SecondWriter: this rank already has committed segments.
        StoreError: the storage failed.
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
        budget: float,
        describe: Callable[[], None],
    ) -> None:
        self.shield = Shield()
        # Optimizers may not appear before the first step.
        self.newly_set_up = True
        self._describe = self.shield.guard("describing the training", describe)
        self.leader: object | None = None
        self.detected = self.losses_reported = self.keeps_model = False
        self.between_steps: Callable[[], object] | None = None
        self.collective: Callable[[int], str | None] | None = None
        self.each_step: list[Callable[[int], object]] = []
        self.classes: list[str] = []
        self.boosted: Callable[[], dict[str, list[float]]] = dict
        self.snapshots: SnapshotTaker | None = None
        self.batch_takers: list[Callable[[str], str]] = []
        config = self.guarded(config)
        guard = self.shield.guard
        self.budget = CaptureBudget(budget, self.shield.meter, lambda: self._writer.busy)
        self.recorder = Recorder(
            config,
            guard("delivering a step", self._deliver),
            guard("delivering a step", self._deliver_plain),
            self.budget,
        )
        self.signal = StopSignal()
        self.joint_stop: JointStop | None = None
        self._agrees = guard("agreeing on the last step", self._stops_with_others)
        self._stop = stop
        self._unmatched = _Unmatched(names)
        self._unmatched.expect(config.collections.values())
        self._copiers: dict[type[TensorCopier], TensorCopier] = {}
        self._copiers_lock = threading.Lock()
        self._shared: dict[object, object] = {}
        self._data = DataReport(storage, rank, lambda: self.recorder.steps, self.shield.report)
        self._look = guard("looking for capture requests", look, metered=False)
        self._look_at_data = guard("reporting training data", self._data.look, metered=False)
        self._writer = RunWriter(
            storage,
            rank,
            policy=policy,
            on_problem=self._on_problem,
            on_release=self._release,
            on_beat=self._beat,
        )

    def guarded(self, config: CaptureConfig) -> CaptureConfig:
        """Return a config with shielded predicates."""
        return config.guarded(self.shield.guard)

    def configure(self, config: CaptureConfig) -> None:
        """Switch to another config at once; see `Recorder.configure`."""
        self._unmatched.expect(config.collections.values())
        self.recorder.configure(self.guarded(config))

    def reconfigure(self, config: CaptureConfig, steps: int | None = None) -> None:
        """Switch to a `guarded` config with the next step; see `Recorder.reconfigure`."""
        self._unmatched.expect(config.collections.values())
        self.recorder.reconfigure(config, steps)

    def copier(self, kind: type[K]) -> K:
        """Return the session's copier of a class."""
        found = self._copiers.get(kind)
        if found is None:
            with self._copiers_lock:
                found = self._copiers[kind] = kind()
        assert isinstance(found, kind)
        return found

    def shared(self, kind: type[S]) -> S:
        """Return the object of a class that the adapters of the session share."""
        make: Callable[[Session], S] = kind
        found = self._shared.get(kind)
        if found is None:
            found = self._shared[kind] = make(self)
        assert isinstance(found, kind)
        return found

    def step_ended(self, *, past: bool = False) -> None:
        """End the train step.

        Args:
            past: whether the model was not watched yet in it, so that only its losses are known:
                its weights have changed since.

        Raises:
            TrainingStopped: the training was asked to stop.
        """
        self.recorder.end_train_step(past=past)
        self._writer.last_step = self.recorder.steps - 1
        for one in self.each_step:
            one(self.recorder.steps)
        if self.between_steps is not None:
            wanted, self.between_steps = self.between_steps, None
            wanted()
        self._stop_if_asked(ended=True)

    def stop_if_asked(self) -> None:
        """End the training if it was asked to stop; called between batches.

        Raises:
            TrainingStopped: the training was asked to stop.
        """
        self._stop_if_asked(ended=False)

    def _stop_if_asked(self, *, ended: bool) -> None:
        if self.signal.due if self.joint_stop is None else self._agrees(ended):
            self._stop()

    def _stops_with_others(self, ended: bool) -> bool:
        assert self.joint_stop is not None, "called for several ranks only"
        return self.joint_stop.due(self.recorder.steps, ended=ended)

    def note_stop(self) -> None:
        """Note that the training ends because it was asked to stop."""
        self._writer.stopped = True

    def flush(self, timeout: float | None) -> bool:
        """Wait until everything delivered is stored; return False on timeout."""
        return self._writer.flush(timeout)

    def close(self) -> None:
        """Deliver the open recordings and wait until everything is stored."""
        self.recorder.close()
        if self.newly_set_up and self.recorder.steps:
            self._describe()
        # Before the writer: what follows its end may not reach an object store.
        self.shield.guard("reporting training data", self._data.close)()
        self._writer.close()
        self.signal.restore()

    def release(self) -> None:
        """Release the objects of the training, after `close`."""
        self.leader = self.snapshots = self.between_steps = None
        self.batch_takers.clear()
        self.each_step.clear()
        self._shared.clear()
        self.shield.release()

    def _beat(self) -> None:
        """Look around; called about once a second on the writer's thread."""
        self._look()
        self._look_at_data()
        if self.collective is not None:
            self._writer.collective = self.collective(self.recorder.steps) or ""

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
        # Values saved after the last step have a step number that is never reached.
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
        self.shield.report(f"{problem}; training continues")


class _Unmatched:
    """Finds custom collections that captured nothing when they were first due.

    Evaluations lack many tensors of a train step, so the first train step counts, unless a
    collection is for evaluations only.

    Args:
        names: return the names of all tensors available for capture.
    """

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names
        self._known: set[str] = set()
        self._pending: set[str] = set()

    def expect(self, collections: Iterable[Collection]) -> None:
        """Add custom collections to check."""
        fresh = {
            collection.name
            for collection in collections
            if collection.selects
            and collection.name not in BUILT_IN
            and collection.name not in _OF_SOME_TRAININGS
        }
        self._pending |= fresh - self._known
        self._known |= fresh

    def complaints(self, recording: Recording) -> list[str]:
        """Return a message for each collection that was due for the first time and is empty."""
        if not self._pending:
            return []
        fresh = [
            collection
            for name, collection in recording.due.collections().items()
            if name in self._pending and (recording.mode == "train" or not _trains(collection))
        ]
        self._pending.difference_update(collection.name for collection in fresh)
        captured = recording.names()
        empty = [one for one in fresh if not any(one.holds(name) for name in captured)]
        return [self._complaint(collection, recording) for collection in empty]

    def _complaint(self, collection: Collection, recording: Recording) -> str:
        names = sorted({*self._names(), *recording.names()})
        if collection.regex is None:
            paths = sorted({path for path in map(module_of, names) if path})
            asked = [*collection.modules, *collection.types]
            near = did_you_mean(str(asked[0]), paths)
            there = ", ".join(paths[:8]) + (", …" if len(paths) > 8 else "")
            return (
                f"collection {collection.name} matched nothing at step {recording.step} "
                f"({recording.mode}): {', '.join(map(str, asked))}: no such modules with the "
                f"requested tensors{near or f'; modules: {there}'}"
            )
        # Compare the names with the pattern without its special characters.
        plain = re.sub(r"\\[a-zA-Z]|[^\w/.]", "", collection.regex or "")
        near = did_you_mean(plain, names) or did_you_mean(
            plain, [name.rpartition("/")[2] for name in names]
        )
        there = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        return (
            f"collection {collection.name} matched nothing at step {recording.step} "
            f"({recording.mode}): no name contains its regex {collection.regex!r}"
            f"{near or f'; names: {there}'}"
        )


def _trains(collection: Collection) -> bool:
    return any("train" in save.modes for save in collection.saves)
