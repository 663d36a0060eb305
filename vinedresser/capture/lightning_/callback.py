"""The callback that connects a hook to Lightning's trainer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import nn

from vinedresser.capture.adapters.adapter import Adapter
from vinedresser.capture.lightning_.adapter import LightningAdapter
from vinedresser.capture.lightning_.logged_values import LoggedValues
from vinedresser.capture.recording.session import Session
from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.store.step_record import Mode

__all__ = ["HookAccess", "LightningCallback"]


def _package() -> Any:
    """Return the package that the program has imported, else the installed one."""
    names = ("lightning.pytorch", "pytorch_lightning")
    loaded = next((name for name in names if name in sys.modules), None)
    if loaded is None:
        loaded = names[0] if find_spec("lightning") is not None else names[1]
    return import_module(loaded)


_LIGHTNING = _package()
_CALLBACK: Any = _LIGHTNING.Callback


class HookAccess(NamedTuple):
    """The parts of a hook that the callback uses.

    Attributes:
        closed: return whether the hook is closed, or captures nothing.
        begin: prepare for a training.
        introduce: add a watched model, given its adapter and the number of ranks.
        note: note the error with which the training ends, or None.
        metric: see `Hook.metric`.
    """

    session: Session
    closed: Callable[[], bool]
    begin: Callable[[], None]
    introduce: Callable[[Adapter, int], None]
    note: Callable[[BaseException | None], None]
    metric: Callable[[str, Any], None]


class LightningCallback(_CALLBACK):  # type: ignore[misc]
    """Watches the module that a trainer fits, validates, tests or predicts with.

        trainer = Trainer(callbacks=[hook.lightning()])

    - A train step is an optimizer step; with manual optimization, a batch in which any optimizer
      took a step.
    - ``losses/loss`` is the value that ``training_step`` and ``validation_step`` return, or its
      "loss"; with manual optimization, the argument of ``manual_backward``, or without it the sum
      of the losses with a backward pass before an optimizer's step. The second one in a batch is
      ``loss#1``.
    - Values passed to ``self.log`` in a train step are ``metrics/<name>``; in an evaluation,
      Lightning's final values are.
    - A validation or test is one record of mode "eval", a prediction one of mode "predict". The
      sanity check before a training is not recorded.
    """

    def __init__(self, hook: HookAccess) -> None:
        self._hook = hook
        self._session = hook.session
        guard = self._session.shield.guard
        versions = {"torch": torch.__version__, "lightning": _LIGHTNING.__version__}
        self._adapter = LightningAdapter(self._session, versions, self._take_logged)
        self._attach = guard("watching the Lightning module", self._watch)
        self._open = guard("the start of an evaluation", self._begin_evaluation)
        self._close = guard("the end of an evaluation", self._end_evaluation)
        self._leave = guard("detaching from the Lightning module", self._detach)
        self._begin_batch = guard("the start of a batch", self._adapter.batch_begins)
        self._lose = guard("the loss", self._adapter.backward)
        self._end_batch = guard("the end of a batch", self._end_manual_step)
        self._block = ExitStack()
        self._values = LoggedValues(self._save_logged)
        self._watched: nn.Module | None = None

    def setup(self, *_: Any, **__: Any) -> None:
        """Install the SIGTERM handler before the trainer's, which then calls it."""
        if not self._session.shield.ours:
            self._session.shield.report(
                "nothing is captured in a process that the trainer forked; use another strategy, "
                "such as 'ddp'"
            )
        elif not self._hook.closed():
            self._hook.begin()
            self._hook.note(None)

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Watch the module and its optimizers."""
        self._attach(trainer, module)

    def on_train_batch_start(self, *_: Any) -> None:
        """Count the losses of a batch from 0."""
        self._begin_batch()

    def on_before_backward(self, _trainer: Any, _module: Any, loss: Any) -> None:
        """Record a loss of a manual optimization."""
        if self._session.leader is self._adapter:
            self._lose(loss)

    def on_train_batch_end(self, *_: Any) -> None:
        """End a step of a manual optimization."""
        if self._session.leader is self._adapter and self._adapter.stepped:
            self._end_batch()

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """Begin an evaluation."""
        if not trainer.sanity_checking:
            self._open(trainer, module, "eval")

    def on_validation_end(self, trainer: Any, _module: Any) -> None:
        """End an evaluation."""
        if not trainer.sanity_checking:
            self._close(trainer)

    def on_test_start(self, trainer: Any, module: Any) -> None:
        """Begin an evaluation."""
        self._open(trainer, module, "eval")

    def on_test_end(self, trainer: Any, _module: Any) -> None:
        """End an evaluation."""
        self._close(trainer)

    def on_predict_start(self, trainer: Any, module: Any) -> None:
        """Begin a prediction."""
        self._open(trainer, module, "predict")

    def on_predict_end(self, trainer: Any, _module: Any) -> None:
        """End a prediction."""
        self._close(trainer)

    def on_exception(self, _trainer: Any, _module: Any, exception: BaseException) -> None:
        """Note the error and detach from the module."""
        if self._session.signal.requested and isinstance(exception, SystemExit):
            # Lightning may handle SIGTERM first, and then ends the training in its own way.
            with suppress(TrainingStopped):
                self._session.stop_if_asked()
        self._hook.note(exception)
        self._leave()

    def teardown(self, *_: Any, **__: Any) -> None:
        """Detach from the module."""
        self._leave()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "the callback of a hook cannot be pickled, as strategies such as 'ddp_spawn' require; "
            "use 'ddp'"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> LightningCallback:
        # Lightning's tuner copies callbacks to restore them later.
        return self

    def _watch(self, trainer: Any, module: nn.Module) -> None:
        if self._hook.closed() or self._watched is module:
            return
        optimizers = trainer.optimizers if trainer.training else ()
        manual = trainer.training and not module.automatic_optimization
        self._adapter.attach(module, optimizers, manual=manual)
        self._watched = module
        # The trainer starts the other ranks after the hook was created.
        self._hook.introduce(self._adapter, trainer.world_size)

    def _detach(self) -> None:
        self._block.close()
        self._adapter.detach()
        self._watched = None

    def _begin_evaluation(self, trainer: Any, module: nn.Module, mode: Mode) -> None:
        self._attach(trainer, module)
        self._values.clear()
        if self._session.recorder.explicit_mode is None:
            self._block.enter_context(self._session.recorder.mode(mode))

    def _end_evaluation(self, trainer: Any) -> None:
        self._values.evaluated(trainer.callback_metrics)
        self._block.close()

    def _take_logged(self, name: str, value: Any) -> None:
        training = self._session.recorder.explicit_mode in (None, "train")
        self._values.take(name, value, training=training)

    def _save_logged(self, metrics: Mapping[str, Any], *, training: bool) -> None:  # noqa: ARG002
        for name, value in metrics.items():
            self._hook.metric(name, value)

    def _end_manual_step(self) -> None:
        self._adapter.stepped = False
        self._session.step_ended()
