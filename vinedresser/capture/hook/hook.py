"""The two lines in a training script: make a hook, let it watch the model."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from vinedresser.capture.adapters.adapter import Adapter
from vinedresser.capture.adapters.model_names import ModelNames
from vinedresser.capture.adapters.packages import needed
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.hook.loop_steps import LoopSteps
from vinedresser.capture.hook.model_adapters import make_adapter
from vinedresser.capture.hook.reported_values import ReportedValues
from vinedresser.capture.hook.user_values import UserValues
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.capture.requests.control import CaptureControl
from vinedresser.capture.requests.trainer_requests import TrainerRequests
from vinedresser.capture.run.environment import Environment
from vinedresser.capture.run.exit_recorder import ExitRecorder
from vinedresser.capture.run.opening import OpenedRun, create_run
from vinedresser.capture.run.yielding import yield_run
from vinedresser.errors import ConfigError
from vinedresser.store.collections.collection import Collection
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.records import StopRecord
from vinedresser.store.writing.record_queue import QueuePolicy

if TYPE_CHECKING:
    from vinedresser.capture.lightning_.callback import LightningCallback
    from vinedresser.capture.xgboost_.callback import XGBoostCallback

__all__ = ["Hook"]

_LOG = logging.getLogger(__name__)


class Hook(ReportedValues):
    """Captures what a training does, into a run that can be read while it is written.

        hook = Hook("runs/digits-1").watch(model, loss=loss_fn, optimizer=optimizer)

    Losses and metrics are captured at every step, unless ``collections`` says otherwise. The
    training computes the same numbers with and without a hook, and no fault of the capture ends it.

    A process that was launched by vinedresser (``VINEDRESSER_RUN`` is set) writes to the run it was
    launched for, whatever ``path`` says, and captures in addition what the launcher and its rules
    ask for. Any other makes a run at ``path``, and says itself how it ended.

    Args:
        path: directory of the run to make, or ``s3://bucket/prefix``.
        collections: by name, when to save a built-in collection, or a `Collection` of one's own.
        name: what people call the run; None: the last part of the path.
        parameters: hyperparameters, for the record.
        total_steps: optimizer steps it is expected to take, for the record.
        policy: what happens when capture is faster than the store: "block" waits, "drop" leaves
            steps out, counts them and says so.
        tunable: by name, what of the training may be changed while it goes on; see `tunable`.

    Raises:
        ConfigError: a collection is not right, or there is no path.
        AlreadyARun: the path holds a run.
        SecondWriter: another hook of this rank writes to the run.
        StoreError: the storage refused.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        collections: (Mapping[str, SaveConfig | tuple[SaveConfig, ...] | Collection] | None) = None,
        name: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        total_steps: int | None = None,
        policy: QueuePolicy = "block",
        tunable: Mapping[str, Any] | None = None,
    ) -> None:
        if policy not in ("block", "drop"):
            raise ConfigError(f"policy = {policy!r}: must be 'block' or 'drop'")
        self._environment = Environment.read()
        own = CaptureConfig.of(collections)
        self._run = self._open(path, own, name, parameters, total_steps)
        if self._environment.run:
            own = own.merged(CaptureConfig.from_json(self._run.record.capture))
        needs = CaptureConfig.from_json(self._run.record.needs)
        self._on_stop: Callable[[Path, int], None] | None = None
        self._begun = self._closed = False
        self._names = ModelNames()
        self._session = Session(
            self._run.storage,
            self._environment.rank,
            own.merged(needs).with_defaults(),
            policy,
            # The control is made below, of the session.
            names=lambda: self._control.names(),  # noqa: PLW0108
            stop=self._end_training,
            look=self._look,
            describe=lambda: self._control.describe(),  # noqa: PLW0108
        )
        if self._run.upload is not None:
            self._run.upload.begin(policy, self._session.shield.report)
        self._control = CaptureControl(
            self._run,
            self._session,
            own,
            needs,
            rank=self._environment.rank,
            world_size=self._environment.world_size,
        )
        self._requests = TrainerRequests(
            self._run,
            self._session,
            lambda: [adapter.checkpoint for adapter in self._control.adapters],
            rank=self._environment.rank,
            world_size=lambda: self._control.world_size,
        )
        for one, of in (tunable or {}).items():
            self.tunable(one, *(of if isinstance(of, (list, tuple)) else (of,)))
        says_its_end = not self._run.launched and self._environment.rank == 0
        self._exit_recorder = ExitRecorder(self._run.storage) if says_its_end else None
        self._values = UserValues(self._session)
        self._steps = LoopSteps(self._session, self._values)
        guard = self._session.shield.guard
        self._save = guard("saving a value", self._values.save, names=0)
        self._take_loss = guard("the loss", self._control.take_loss, skip=lambda: self._closed)
        atexit.register(self.close)

    @property
    def path(self) -> str:
        """Where the run lies."""
        return self._run.location

    @property
    def problems(self) -> list[str]:
        """What was reported so far: faults of the capture, collections that hold nothing."""
        return list(self._session.shield.problems)

    def watch(
        self, model: Any, loss: Any = None, optimizer: Any = None, *, name: str | None = None
    ) -> Self:
        """Watch a model from now on; several models one after the other.

        Args:
            model: a torch.nn.Module or keras.Model, as it is called by the training.
            loss: the loss module whose value is captured; for a function see `loss`.
            optimizer: the model's optimizer, or a list of several in the order of their steps. The
                one that is given last, over all models, ends the step. None: the first optimizer
                that updates the model.
            name: comes before the names of all that belongs to the model, as in
                ``weights/<name>.conv1.weight``; only the first model may go without.

        Raises:
            ConfigError: the model is of no known kind, or has no name of its own, or loss or
                optimizer are of a kind that cannot be watched.
            MissingDependency: a package of the framework's extra is not installed.
        """
        self._check_name(name)
        introduce = self._introduce
        introduce(make_adapter(self._session, introduce, model, loss, optimizer, name=name))
        self._names.take(name)
        return self

    def xgboost(self, **arguments: Any) -> XGBoostCallback:
        """Return a callback for `xgboost.train` or an estimator of `xgboost.sklearn`.

        Args:
            arguments: see `vinedresser.capture.xgboost_.callback.XGBoostCallback`.

        Raises:
            ConfigError: the hook is closed, or an argument is not right.
            MissingDependency: a package of the extra "xgboost" is not installed.
        """
        self._check_name(None)
        with needed("XGBoost", "xgboost"):
            from vinedresser.capture.xgboost_.callback import XGBoostCallback
        return XGBoostCallback(self._session, self._introduce, **arguments)

    def sklearn(self, estimator: Any, **arguments: Any) -> Any:
        """Return an estimator of scikit-learn that is watched whenever it is fitted.

        Args:
            estimator: any estimator with ``fit`` or ``partial_fit``.
            arguments: see `vinedresser.capture.sklearn_.estimator.watched`.

        Raises:
            ConfigError: the hook is closed, or it is no estimator.
            MissingDependency: scikit-learn is not installed.
        """
        self._check_name(None)
        with needed("an estimator", "sklearn"):
            from vinedresser.capture.sklearn_.estimator import watched
        return watched(self._session, self._introduce, estimator, **arguments)

    def lightning(self) -> LightningCallback:
        """Return a callback for Lightning's ``Trainer(callbacks=[...])``.

        Raises:
            ConfigError: the hook is closed.
            MissingDependency: neither lightning nor pytorch_lightning is installed.
        """
        self._check_name(None)
        with needed("a Lightning module", "lightning"):
            from vinedresser.capture.lightning_.callback import LightningCallback
            from vinedresser.capture.lightning_.hook_access import HookAccess
        access = HookAccess(
            self._session,
            lambda: self._closed,
            lambda: self._begin(describe=False),
            self._introduce,
            self._note_error,
            self.metric,
        )
        return LightningCallback(access)

    def on_stop(self, callback: Callable[[Path, int], None]) -> None:
        """Save one's own way when the training is stopped, instead of the model's weights.

        Args:
            callback: called once, between two steps, with the run's directory of checkpoints and
                the number of optimizer steps done.
        """
        self._on_stop = callback

    def tunable(self, name: str, *targets: Any) -> Self:
        """Declare that a parameter of the training may be changed while it goes on.

        Who asks for a change (the action `adjust`) gets it at the end of a step; nothing else of
        the training is ever changed.

        Args:
            name: "lr", the learning rate, of torch or Keras; or "clip", the norm to which gradients
                are clipped, of torch.
            targets: the optimizer that has it, and for "lr" of torch the schedulers that compute
                it, which else set it back; for Keras, and for "clip", perhaps several optimizers.

        Raises:
            ConfigError: there is no such parameter, or it cannot be changed in that.
            MissingDependency: a package of the framework's extra is not installed.
        """
        self._requests.declare(name, targets)
        return self

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until every step that has ended can be read; return False when that took too long.

        Args:
            timeout: seconds to wait at the most; None: as long as it takes.
        """
        return self._session.flush(timeout)

    def close(self) -> None:
        """Store what is still open and let go of the model; at the end of the program by itself."""
        if self._closed or not self._session.shield.ours:
            return
        self._closed = True
        atexit.unregister(self.close)
        guard = self._session.shield.guard
        for adapter in self._control.adapters:
            guard("leaving the model", adapter.detach)()
        upload = self._run.upload
        if upload is not None:
            upload.end_soon()
        self._session.close()
        guard("answering a capture request", self._control.close)()
        guard("answering a request to the trainer", self._requests.close)()
        if self._exit_recorder is not None:
            steps = self._session.recorder.steps
            write = guard(
                "writing the exit record", self._exit_recorder.write, then="readers may wait"
            )
            write(steps - 1 if steps else None)
        if upload is not None:
            guard("the upload", upload.finish)(self._session.shield.report)

    def __enter__(self) -> Self:
        """Return the hook; the end of the block closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close, and say that the run crashed if the block did."""
        if error is not None:
            self._note_error(error)
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "a hook belongs to the process that made it and cannot be handed to another: keep it "
            "out of data sets and arguments of processes; a rank makes a hook of its own"
        )

    def _note_error(self, error: BaseException | None) -> None:
        """Note the error with which the training ends, or None, for the exit record."""
        if self._exit_recorder is not None and not self._closed:
            self._exit_recorder.note(error)

    def _check_name(self, name: str | None) -> None:
        """Raise `ConfigError` where a model cannot be watched (any more) under a name."""
        if self._closed:
            raise ConfigError("this hook is closed; make a new one")
        self._names.check(name)

    def _introduce(self, adapter: Adapter, world_size: int | None = None) -> None:
        """Take in a model that is watched from now on, and the number of ranks if it changed."""
        self._begin(describe=False)
        if world_size is not None:
            self._control.world_size = world_size
        self._control.introduce(adapter)

    def _begin(self, *, describe: bool = True) -> None:
        """Get ready for a training, once."""
        if self._begun:
            return
        self._begun = True
        if describe:
            self._control.describe()
        self._listen_for_stops()

    def _listen_for_stops(self) -> None:
        """Have SIGTERM end the training between two steps."""
        if not self._session.signal.install():
            _LOG.info("not in the main thread: SIGTERM ends the program at once")

    def _open(
        self,
        path: str | os.PathLike[str] | None,
        own: CaptureConfig,
        name: str | None,
        parameters: Mapping[str, Any] | None,
        total_steps: int | None,
    ) -> OpenedRun:
        """Open the run that this process was launched for, or else make one."""
        launched = self._environment.run
        if launched:
            if path is not None:
                _LOG.info("captures into %s, for which it was launched, not %s", launched, path)
            return yield_run(self._environment)
        return create_run(
            path,
            self._environment,
            own.with_defaults(),
            name=name,
            parameters=parameters,
            total_steps=total_steps,
        )

    def _look(self) -> None:
        """Look what others ask; called about every second on the writer's thread."""
        self._requests.look()
        self._control.look()

    def _end_training(self) -> None:
        """Save the weights, close, and end the program."""
        storage, guard = self._run.storage, self._session.shield.guard
        if not self._closed:
            directory = Path(storage.location, "checkpoints")
            guard("making the directory of checkpoints", directory.mkdir)(exist_ok=True)
            own = [adapter.checkpoint for adapter in self._control.adapters]
            for save in [self._on_stop] if self._on_stop else own:
                saving = guard("saving a checkpoint", save, then="the run stops without it")
                saving(directory, self._session.recorder.steps)
        asked = guard("looking for the stop record", storage.exists)(StopRecord.KEY)
        stopped = TrainingStopped(0 if asked else 128 + signal.SIGTERM)
        self._note_error(stopped)
        self.close()
        # At its end the interpreter would look once more for garbage among all that a framework has
        # made, for about a second with torch, while whoever asked for the stop waits.
        gc.freeze()
        raise stopped
