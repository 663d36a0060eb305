"""The hook of a training whose script has none."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.util import Finalize
from typing import Any

from vinedresser.capture.hook.hook import Hook
from vinedresser.capture.recording.stopping import StopSignal, TrainingStopped
from vinedresser.capture.run.claims import claim
from vinedresser.capture.run.opening import OpenedRun

__all__ = ["AttachedHook"]


class AttachedHook(Hook):
    """Writes to the run for which this process was launched, or to a further one beside it.

    Raises:
        SecondWriter: there were too many trainings.
        StoreError: the storage refused.
    """

    def __init__(self) -> None:
        # A worker's SIGTERM that came while we store what is left.
        self._closing = self._told_to_end = False
        super().__init__()
        if not self._run.launched and self._environment.rank == 0:
            self._session.shield.report(f"a further training is captured in {self.path}")
        if _is_worker():
            # Its end skips atexit.
            Finalize(self, self.close, exitpriority=0)

    @property
    def steps(self) -> int:
        """How many steps the training has taken."""
        return self._session.recorder.steps

    def watch_trained(
        self, model: Any, optimizers: Sequence[Any], name: str | None, *, leads: bool
    ) -> None:
        """Watch a model that was found in training.

        Args:
            model: the model.
            optimizers: those that update it.
            name: see `Hook.watch`.
            leads: its optimizer's step is the last one of a step of the training.
        """
        leader = self._session.leader
        self.watch(model, None, list(optimizers), name=name)
        if leader is not None and not leads:
            # The model that was watched last would lead.
            self._session.leader = leader

    def loss_recorder(
        self, name: str, described: dict[str, Any] | None = None
    ) -> Callable[[Any, tuple[Any, ...]], None]:
        """Return what takes the values of a loss, each with what it was computed of.

        Args:
            name: of the loss.
            described: for the record, type and settings of what computes it; None: not known.
        """
        taker = self._control.loss_taker()
        if taker is None:
            return lambda _value, _arguments: None
        if described is not None:
            self._control.know_loss(name, described)
        return partial(self._session.shield.guard("the loss", taker.record_loss), name)

    def _open(self, *_: Any) -> OpenedRun:
        """Open the run; see `Hook`."""
        return claim(self._environment)

    def _listen_for_stops(self) -> None:
        """Have SIGTERM end the training between two steps, but a worker at once.

        A pool ends its workers by one SIGTERM, whether they train or wait, and waits for their end.
        """
        if self._environment.world_size > 1 or not _is_worker():
            super()._listen_for_stops()
            return
        before = signal.getsignal(signal.SIGTERM)
        ours = isinstance(getattr(before, "__self__", None), StopSignal | AttachedHook)
        main = threading.current_thread() is threading.main_thread()
        if main and (before is signal.SIG_DFL or ours):
            signal.signal(signal.SIGTERM, self._end_worker)

    def _end_worker(self, *_: object) -> None:
        """Store what was captured, and end as without us."""
        self._told_to_end = True
        if not self._closing:
            if self._exit_recorder is not None:
                self._exit_recorder.note(TrainingStopped())
            self.close()

    def let_go(self) -> None:
        """Close, and keep nothing of the models."""
        self.close()
        self._control.adapters.clear()
        self._session.leader = None
        if self._environment.world_size > 1:
            # A process group that a model of ours alone keeps alive must end now: in the
            # interpreter's own end its threads would end the process by SIGABRT.
            gc.collect()

    def close(self) -> None:
        """See `Hook.close`; a worker that was told to end does so when all is stored."""
        self._closing = True
        super().close()
        self._closing = False
        if self._told_to_end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)


def _is_worker() -> bool:
    """Say whether this is a process of multiprocessing."""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None
