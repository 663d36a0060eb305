"""The hook, which a training script creates to capture its training."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from vinedresser.capture.adapters.adapter import Adapter
from vinedresser.capture.adapters.packages import needed
from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.capture.hook.model_adapters import ModelNames, make_adapter
from vinedresser.capture.hook.ranks import prepare_rank
from vinedresser.capture.hook.snapshots import snapshot_taker
from vinedresser.capture.hook.steering import SteeredTraining
from vinedresser.capture.hook.user_values import LoopSteps, UserValues
from vinedresser.capture.live.settings import LiveSettings
from vinedresser.capture.live.starting import live_settings, start_agent
from vinedresser.capture.recording.budget import DEFAULT_SHARE, check_share
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.capture.requests.control import CaptureControl
from vinedresser.capture.requests.trainer_requests import TrainerRequests
from vinedresser.capture.run.creating import open_for
from vinedresser.capture.run.environment import Environment
from vinedresser.capture.run.exit_recorder import ExitRecorder
from vinedresser.capture.run.opening import OpenedRun, uncaptured_run
from vinedresser.capture.shield import Shield
from vinedresser.errors import ConfigError, RunError, StoreError
from vinedresser.objects import Storage
from vinedresser.objects.files import folder_below
from vinedresser.plain_logs import plain_logger
from vinedresser.snapshots.settings import SnapshotSettings, check_guard
from vinedresser.store.collections.collection import Collection
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.reading.controls import changes_of
from vinedresser.store.records import StopRecord
from vinedresser.store.writing.record_queue import QueuePolicy

if TYPE_CHECKING:
    from vinedresser.capture.lightning_.callback import LightningCallback
    from vinedresser.capture.xgboost_.callback import XGBoostCallback

_LOG = plain_logger(__name__)


class Hook(SteeredTraining):
    """Captures a training into a run, which can be read while it is written.

        hook = Hook("runs/digits-1").watch(model, loss=loss_fn, optimizer=optimizer)

    Losses and metrics are captured at every step, unless ``collections`` says otherwise. The
    training computes the same numbers with and without a hook, and capture errors never stop it.

    In a process launched by vinedresser (``VINEDRESSER_RUN`` is set), the hook ignores ``path``,
    writes to the launched run, and also captures the tensors that the launcher and its rules need.
    In other processes, it creates a run at ``path``, or at ``<path>-2``, ``<path>-3`` and so on if
    there is one, and writes the exit record itself.

    Args:
        path: directory of the new run, or ``s3://bucket/prefix``.
        collections: save configs of built-in collections, and custom collections, by name.
        name: name of the run; None: the last part of the path.
        parameters: hyperparameters, for the record.
        total_steps: expected number of optimizer steps, for the record.
        policy: what to do when capture is faster than the store: "block" waits, "drop" drops steps,
            counts them and reports it.
        tunable: targets of tunable parameters by name; see `tunable`.
        budget: share of the training's time for captures that only rules need, above 0; beyond it
            they become rarer. 1: no limit; None: that of the launched run, else 0.02. Captures that
            you ask for are never left out.
        guard: "nonfinite": look for gradients that are not finite before each update, and take a
            snapshot of the step (torch, Keras); "off"; None: that of the launched run, else "off".
        snapshots: when snapshots are taken, and how many are kept.
        live: whether the training may be steered and asked; true: it may be asked; None: the
            settings of the launched run, else the defaults.
        strict: raise an error if the run cannot be at ``path``. By default the reason is reported,
            and the training continues without being captured.

    Raises:
        ConfigError: an argument is invalid, or the path is missing.
        AlreadyARun: ``strict``, and the path already holds a run.
        SecondWriter: ``strict``, and another process of this rank writes to the run.
        NotARun: ``strict``, and the launched run is missing, or rank 0 did not create the run.
        StoreError: ``strict``, and the disk or the object store failed.
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
        budget: float | None = None,
        guard: str | None = None,
        snapshots: SnapshotSettings | None = None,
        live: LiveSettings | bool | None = None,
        strict: bool = False,
    ) -> None:
        if policy not in ("block", "drop"):
            raise ConfigError(f"policy = {policy!r}: must be 'block' or 'drop'")
        if budget is not None:
            check_share(budget, "budget")
        check_guard(guard or "off")
        self._environment = Environment.read()
        own = CaptureConfig.of(collections)
        self._run = self._open(
            path, own, name=name, parameters=parameters, total_steps=total_steps, strict=strict
        )
        captures = self._run.captures
        settings = live_settings(live if captures else False, self._run)
        replay = changes_of(settings.replay)
        if self._environment.run:
            own = own.merged(CaptureConfig.from_json(self._run.record.capture))
        needs = CaptureConfig.from_json(self._run.record.needs).elastic()
        self._share = budget or self._run.record.capture_budget or DEFAULT_SHARE
        self._on_stop = None
        self._ready = self._begun = self._closed = self._erred = False
        self._names = ModelNames()
        config = own.merged(needs).with_defaults() if captures else CaptureConfig.of(None)
        try:
            self._session = self._new_session(config, policy)
        except (RunError, StoreError) as error:
            if strict:
                raise
            run = self._run
            self._run = uncaptured_run(run.location, run.record, error, launched=run.launched)
            self._session = self._new_session(config, policy)
        self._session.keeps_model = self._environment.keeps_model
        if self._run.failure:
            self._session.shield.report(self._run.failure)
        if self._run.upload is not None:
            self._run.upload.begin(policy, self._session.shield.report)
        rank = self._environment.rank
        prepare_rank(self._run, self._environment, self._session, lambda: self._control.framework)
        self._session.snapshots = snapshot_taker(self._run, self._session, rank, guard, snapshots)
        self._control = CaptureControl(
            self._run,
            self._session,
            own,
            needs,
            rank=rank,
            world_size=self._environment.world_size,
        )
        self._requests = TrainerRequests(
            self._run,
            self._session,
            lambda: [adapter.checkpoint for adapter in self._control.adapters],
            rank=rank,
            world_size=lambda: self._control.world_size,
            control=settings.control,
            replay=replay,
        )
        self._agent = start_agent(settings, self._run, self._session, self._control, rank)
        unsupervised = not self._run.launched and rank == 0
        self._exit_recorder = ExitRecorder(self._run.storage) if unsupervised else None
        self._values = UserValues(self._session)
        self._steps = LoopSteps(self._session, self._values)
        shielded = self._session.shield.guard
        self._save = shielded("saving a value", self._values.save, names=0)
        self._take_loss = shielded("the loss", self._control.take_loss, skip=lambda: self._closed)
        for one, of in (tunable or {}).items():
            self.tunable(one, *(of if isinstance(of, (list, tuple)) else (of,)))
        if rank == 0 and self._environment.run:
            self._search_output()
        atexit.register(self.close)
        self._ready = True

    @property
    def path(self) -> str:
        """Location of the run."""
        return self._run.location

    @property
    def problems(self) -> list[str]:
        """Reported problems, such as capture errors and collections that match nothing."""
        return list(self._session.shield.problems)

    def watch(
        self, model: Any, loss: Any = None, optimizer: Any = None, *, name: str | None = None
    ) -> Self:
        """Watch a model; call it once for each model.

        Args:
            model: torch.nn.Module or keras.Model, the object that the training calls.
            loss: loss module whose value is captured; for functions, see `loss`. None: if none is
                passed at all, that of a torch model is found at its backward pass, with predictions
                and labels if they are certain, and stored as ``losses/loss``.
            optimizer: optimizer of the model, or a list of optimizers in the order of their steps.
                The last one passed, over all models, ends the step. None: the first optimizer that
                updates the model.
            name: prefix of the model's tensor names, as in ``weights/<name>.conv1.weight``; at most
                one model may have none.

        Returns:
            The hook.

        Raises:
            ConfigError: the model, the loss or the optimizer cannot be watched, the name is invalid
                or taken, or the hook is closed.
            MissingDependency: a package of the framework's extra is not installed.
        """
        self._check_name(name)
        if self._run.captures:
            introduce = self._introduce
            introduce(make_adapter(self._session, introduce, model, loss, optimizer, name=name))
        self._names.take(name)
        return self

    def xgboost(self, **arguments: Any) -> XGBoostCallback:
        """Return a callback for `xgboost.train` or an estimator of `xgboost.sklearn`.

        Args:
            arguments: see `vinedresser.capture.xgboost_.callback.XGBoostCallback`.

        Raises:
            ConfigError: the hook is closed, or an argument is invalid.
            MissingDependency: a package of the extra "xgboost" is not installed.
        """
        self._check_name(None)
        with needed("XGBoost", "xgboost"):
            from vinedresser.capture.xgboost_.callback import XGBoostCallback
        return XGBoostCallback(
            self._session, self._introduce, suffix=self._suffix("xgboost"), **arguments
        )

    def sklearn(self, estimator: Any, **arguments: Any) -> Any:
        """Return a wrapper of a scikit-learn estimator that captures its fits.

        Args:
            estimator: any estimator with ``fit`` or ``partial_fit``.
            arguments: see `vinedresser.capture.sklearn_.estimator.watched`.

        Raises:
            ConfigError: the hook is closed, or the object is not an estimator.
            MissingDependency: scikit-learn is not installed.
        """
        self._check_name(None)
        with needed("an estimator", "sklearn"):
            from vinedresser.capture.sklearn_.estimator import watched
        return watched(
            self._session,
            self._introduce,
            estimator,
            suffix=self._suffix("sklearn"),
            **arguments,
        )

    def _suffix(self, framework: str) -> str:
        """Return what distinguishes the checkpoints of a model from those of earlier ones."""
        earlier = sum(one.framework == framework for one in self._control.adapters)
        return f"-{earlier + 1}" if earlier else ""

    def lightning(self) -> LightningCallback:
        """Return a callback for Lightning's ``Trainer(callbacks=[...])``.

        Raises:
            ConfigError: the hook is closed.
            MissingDependency: neither lightning nor pytorch_lightning is installed.
        """
        self._check_name(None)
        with needed("a Lightning module", "lightning"):
            from vinedresser.capture.lightning_.callback import HookAccess, LightningCallback
        access = HookAccess(
            self._session,
            lambda: self._closed or not self._run.captures,
            lambda: self._begin(describe=False),
            self._introduce,
            self._note_error,
            self.metric,
        )
        return LightningCallback(access)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all finished steps are readable; return False on timeout.

        Args:
            timeout: maximum time to wait, in seconds; None: no limit.
        """
        return self._session.flush(timeout)

    def close(self) -> None:
        """Store the open data and detach from the models; called automatically at exit."""
        if self._closed or not self._session.shield.ours:
            return
        own = [adapter.checkpoint for adapter in self._control.adapters]
        failed = self._erred or hasattr(sys, "last_value")
        if self._session.keeps_model and own and not failed:
            # Not beside the script's own: a script resumes from those.
            self._save_checkpoint(own, "checkpoints/last")
        self._closed = True
        atexit.unregister(self.close)
        guard = self._session.shield.guard
        for adapter in self._control.adapters:
            guard("detaching from the model", adapter.detach)()
        upload = self._run.upload
        if upload is not None:
            upload.end_soon()
        self._session.close()
        if self._agent is not None:
            guard("the end of the agent", self._agent.close)()
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
        self._control.release()
        self._session.release()

    def __enter__(self) -> Self:
        """Return the hook, which the end of the block closes."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the hook; the run counts as crashed if the block raised an error."""
        if error is not None:
            self._note_error(error)
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "a hook cannot be pickled or passed to another process: keep it out of data sets and "
            "process arguments, and create one in each rank"
        )

    def _note_error(self, error: BaseException | None) -> None:
        """Note the error with which the training ends, or None, for the exit record."""
        self._erred = error is not None
        if self._exit_recorder is not None and not self._closed:
            self._exit_recorder.note(error)

    def _check_name(self, name: str | None) -> None:
        """Raise `ConfigError` if the hook is closed or a model's name is invalid or taken."""
        if self._closed:
            raise ConfigError("the hook is closed; create a new one")
        self._names.check(name)

    def _introduce(self, adapter: Adapter, world_size: int | None = None) -> None:
        """Add a watched model; optionally update the number of ranks."""
        self._begin(describe=False)
        if world_size is not None:
            self._control.world_size = world_size
        self._control.introduce(adapter)

    def _begin(self, *, describe: bool = True) -> None:
        """Prepare for a training, once."""
        if self._begun:
            return
        self._begun = True
        if describe:
            self._control.describe()
        self._listen_for_stops()

    def _listen_for_stops(self) -> None:
        if not self._session.signal.install():
            _LOG.info("not in the main thread: SIGTERM terminates the program at once")

    def _open(
        self, path: str | os.PathLike[str] | None, own: CaptureConfig, **arguments: Any
    ) -> OpenedRun:
        """Open the launched run, or create one."""
        return open_for(path, self._environment, own.with_defaults(), **arguments)

    def _new_session(self, config: CaptureConfig, policy: QueuePolicy) -> Session:
        return Session(
            *(self._run.storage, self._environment.rank, config, policy),
            # The control is created later, from the session.
            names=lambda: self._control.names(),  # noqa: PLW0108
            stop=self._end_training,
            look=self._look,
            budget=self._share,
            describe=lambda: self._control.describe(),  # noqa: PLW0108
        )

    def _look(self) -> None:
        """Look for requests; called about once a second on the writer's thread."""
        # On a busy machine, the first look may come before the hook is complete.
        if self._ready:
            self._requests.look()
            self._control.look()

    def _save_checkpoint(
        self, saves: Sequence[Callable[[Path, int], object]], folder: str = "checkpoints"
    ) -> None:
        steps, shield = self._session.recorder.steps, self._session.shield
        _save_final_checkpoint(self._run.storage, saves, steps, shield, folder)

    def _end_training(self) -> None:
        """Save a checkpoint, close the hook, and raise `TrainingStopped`."""
        if not self._closed:
            own = [adapter.checkpoint for adapter in self._control.adapters]
            self._save_checkpoint([self._on_stop] if self._on_stop else own)
        look = self._session.shield.guard("looking for the stop record", self._run.storage.exists)
        asked = look(StopRecord.KEY)
        stopped = TrainingStopped(0 if asked else 128 + signal.SIGTERM)
        self._note_error(stopped)
        self._session.note_stop()
        self.close()
        # Else the interpreter's final garbage collection takes about a second with torch.
        gc.freeze()
        raise stopped


def _save_final_checkpoint(
    storage: Storage,
    saves: Iterable[Callable[[Path, int], object]],
    steps: int,
    shield: Shield,
    folder: str = "checkpoints",
) -> None:
    """Save the state of a training that is about to end.

    Args:
        saves: functions that save, given the folder and the number of finished steps.
        shield: guards the functions.
        folder: folder within the run.
    """
    guard = shield.guard
    then = "the run ends without it"
    create = guard("creating the checkpoint directory", _created, then=then)
    directory = create(Path(storage.location), folder)
    if directory is None:
        return
    for save in saves:
        guard("saving a checkpoint", save, then=then)(directory, steps)


def _created(run: Path, folder: str) -> Path:
    directory = folder_below(run, folder)
    # Each by itself: a run that has been removed stays so.
    for path in reversed([directory, *directory.parents[: len(Path(folder).parts) - 1]]):
        path.mkdir(exist_ok=True)
    return directory
