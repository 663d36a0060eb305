"""The hook of a training whose script does not create one."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.util import Finalize
from typing import Any

from vinedresser.capture.adapters.adapter import GradientKeeper
from vinedresser.capture.adapters.training_setup import says_more
from vinedresser.capture.hook.hook import Hook
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.stopping import StopSignal, TrainingStopped
from vinedresser.capture.run.claims import claim
from vinedresser.capture.run.opening import OpenedRun
from vinedresser.store.records import LaunchRecord, read_record

__all__ = ["AttachedHook", "is_worker"]

# Share of the grace period between SIGTERM and SIGKILL.
_OWN_SHARE = 0.4
# A script with a hundred trainings prints each problem once.
_TOLD: set[str] = set()


class AttachedHook(Hook):
    """Writes to the run for which this process was launched, or to an additional run next to it.

    Raises:
        SecondWriter: There were too many trainings.
        StoreError: The run could not be opened.
    """

    def __init__(self) -> None:
        # SIGTERM may arrive in a worker while the hook is closing.
        self._closing = self._terminated = False
        super().__init__()
        self._session.shield.told = _TOLD
        self._session.detected = True
        if not self._run.launched and self._environment.rank == 0:
            self._session.shield.report(f"another training is captured in {self.path}")
        if is_worker():
            # Workers of multiprocessing skip atexit.
            Finalize(self, self.close, exitpriority=0)

    def expect_training(self) -> None:
        """Prepare for a training, after metrics that were printed before it."""
        self._control.world_size = self._environment.world_size

    @property
    def steps(self) -> int:
        """Number of steps of the training."""
        return self._session.recorder.steps

    def watch_trained(
        self, model: Any, optimizers: Sequence[Any], name: str | None, *, leads: bool
    ) -> None:
        """Watch a model that was detected in training.

        Args:
            optimizers: the optimizers that update it.
            name: see `Hook.watch`.
            leads: whether its optimizer's step is the last of a training step.
        """
        leader = self._session.leader
        self.watch(model, None, list(optimizers), name=name)
        if leader is not None and not leads:
            # Otherwise the model watched last would lead.
            self._session.leader = leader

    def end_step(self, *, past: bool = False) -> None:
        """End a step of a training without an optimizer.

        Args:
            past: see `Session.step_ended`.

        Raises:
            TrainingStopped: the training was asked to stop.
        """
        if not self._closed:
            self._session.step_ended(past=past)

    def after_each_step(self, call: Callable[[int], object]) -> None:
        """See `Attached.after_each_step`."""
        self._session.each_step.append(call)

    def keep_gradients(self) -> None:
        """Keep the gradients of a training without an optimizer until the end of the step."""
        for adapter in self._control.adapters:
            if isinstance(adapter, GradientKeeper):
                adapter.keep_gradients()

    def loss_recorder(
        self, name: str, described: dict[str, Any] | None = None
    ) -> Callable[[Any, tuple[Any, ...]], None]:
        """Return a function that records a value of a loss and the arguments of the loss function.

        Args:
            described: type and settings of the loss function for the record; None if unknown.
        """
        taker = self._control.loss_taker
        if taker is None:
            return lambda _value, _arguments: None
        if described is not None:
            self._control.know_loss(name, described)
        return partial(self._session.shield.guard("the loss", taker.record_loss), name)

    def tensors_due(self) -> bool:
        """Return whether more than numbers may be due in the current step."""
        recorder = self._session.recorder
        return not recorder.quiet and (recorder.plain is None or recorder.plain.keeps_gradients)

    def comparisons_due(self) -> bool:
        """See `LossSink.comparisons_due`."""
        return self._session.recorder.comparisons_due()

    def loss_inputs_due(self, *, several: bool = False) -> Recording | None:
        """See `LossSink.loss_inputs_due`."""
        taker = self._control.input_taker
        return None if taker is None else taker.inputs_due(several=several)

    def know_loss_function(self, name: str, setup: dict[str, Any]) -> None:
        """See `LossSink.know_loss_function`."""
        if says_more(setup, self._control.losses.get(name)):
            self._control.know_loss(name, setup)

    def record_loss_inputs(
        self, recording: Recording, name: str, inputs: tuple[Any, ...], *, paired: bool
    ) -> None:
        """See `LossSink.record_loss_inputs`."""
        taker = self._control.input_taker
        if taker is not None:
            taker.record_inputs(recording, name, inputs, paired=paired)

    def _open(self, *_: Any, **__: Any) -> OpenedRun:
        """Open the run; see `Hook`."""
        return claim(self._environment)

    def _listen_for_stops(self) -> None:
        """Stop the training between two steps on SIGTERM, but a worker immediately.

        A script that handles SIGTERM itself gets almost half of its grace period to end by itself.
        A pool sends its workers one SIGTERM, even if they are idle, and waits for their end.
        """
        if self._environment.world_size > 1 or not is_worker():
            read = self._session.shield.guard("reading the grace period", read_record)
            launch = read(self._run.storage, LaunchRecord)
            if launch is not None:
                self._session.signal.patience = _OWN_SHARE * launch.grace
            super()._listen_for_stops()
            return
        before = signal.getsignal(signal.SIGTERM)
        own = isinstance(getattr(before, "__self__", None), StopSignal | AttachedHook)
        main = threading.current_thread() is threading.main_thread()
        if main and (before is signal.SIG_DFL or own):
            signal.signal(signal.SIGTERM, self._terminate_worker)

    def _terminate_worker(self, *_: object) -> None:
        """Store the captured data and terminate."""
        self._terminated = True
        if not self._closing:
            if self._exit_recorder is not None:
                self._exit_recorder.note(TrainingStopped())
            self.close()

    def logged(self, metrics: Mapping[str, Any], *, training: bool) -> None:
        """See `Attached.logged`."""
        if training:
            self._session.recorder.resume_training(certain=True)
            for name, value in metrics.items():
                self.metric(name, value)
        else:
            self._evaluated(metrics)

    def let_go(self) -> None:
        """Close the hook and release the models."""
        self.close()
        if self._environment.world_size > 1:
            # A process group that only a watched model keeps alive must end now: during the
            # interpreter's shutdown, its threads would abort the process.
            gc.collect()

    def close(self) -> None:
        """See `Hook.close`; a worker that received SIGTERM terminates afterwards."""
        self._closing = True
        super().close()
        self._closing = False
        if self._terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)


def is_worker() -> bool:
    """Return whether this is a child process of multiprocessing."""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None
