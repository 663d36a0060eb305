"""The adapter for PyTorch: from hooks on a model, its loss and its optimizer to recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.optim import Optimizer

from vinedresser.capture.modules import ModuleInfo
from vinedresser.capture.recording import Recording
from vinedresser.capture.session import Session
from vinedresser.capture.store.step_record import Mode
from vinedresser.capture.torch_.activations import activation_name
from vinedresser.capture.torch_.checkpoint import save_checkpoint
from vinedresser.capture.torch_.keeper import TorchKeeper
from vinedresser.capture.torch_.names import Names, leaves, unwrapped
from vinedresser.capture.torch_.optimizers import OptimizerHooks
from vinedresser.capture.torch_.outputs import OutputHooks
from vinedresser.errors import ConfigError

__all__ = ["TorchAdapter"]


class TorchAdapter:
    """Watches one torch model.

    A step in which nothing is due costs one call before the model's forward and two around the
    optimizer's step. What is due is taken where it is right: weights before the update, gradients
    as the optimizer consumes them (reduced over ranks, clipped, unscaled), outputs before anybody
    can write to them.

    Args:
        session: takes what is seen.
        model: called as it is given here, wrappers (compiled, data parallel) and all.
        loss: a loss module; None where there is none, or `vinedresser.capture.Hook.loss` is used.
        optimizer: the one whose steps are counted; None: the first that updates the model.
        name: comes before the names of all that belongs to the model; None: nothing does.

    Raises:
        ConfigError: loss or optimizer are of a kind that torch cannot watch.
    """

    def __init__(
        self,
        session: Session,
        model: nn.Module,
        loss: nn.Module | None,
        optimizer: Optimizer | None,
        name: str | None = None,
    ) -> None:
        _check(loss, optimizer)
        self._session = session
        self._recorder = session.recorder
        self._root = model
        self._model = unwrapped(model)
        self._names = Names(self._model, name)
        self._keeper = session.keeper(TorchKeeper)
        keep = session.shield.guard("keeping a tensor", self._keeper.keep_parameter, names=1)
        self._keep = keep
        self._outputs = OutputHooks(model, self._names, self._keeper.keep, session.shield)
        guard = session.shield.guard
        # What torch.compile traces must show no trace of us.
        skip = torch.compiler.is_compiling
        before = guard("the start of a forward", self._before_forward, skip=skip)
        self._handles = [model.register_forward_pre_hook(before, with_kwargs=True)]
        if loss is not None:
            self._loss = type(unwrapped(loss)).__name__
            after = guard("the loss", self._after_loss, skip=skip)
            self._handles.append(loss.register_forward_hook(after))
        self._optimizers = OptimizerHooks(
            self._model,
            optimizer,
            guard("the start of an optimizer step", self._before_update, skip=skip),
            guard("the end of an optimizer step", self._after_update, skip=skip),
            shield=session.shield,
            skip=skip,
        )

    @property
    def framework(self) -> str:
        """See `Adapter.framework`."""
        return "torch"

    @property
    def versions(self) -> dict[str, str]:
        """See `Adapter.versions`."""
        return {"torch": torch.__version__}

    def names(self) -> list[str]:
        """See `Adapter.names`."""
        return self._names.all()

    def modules(self) -> dict[str, ModuleInfo]:
        """See `Adapter.modules`."""
        return {
            path: ModuleInfo(type(module).__name__, activation_name(module))
            for path, module in self._names.modules()
        }

    def path_of(self, module: Any) -> str | None:
        """See `Adapter.path_of`."""
        found = (path for path, one in self._names.modules() if one is module)
        return next(found, None)

    def checkpoint(self, directory: Path, step: int) -> None:
        """See `Adapter.checkpoint`."""
        save_checkpoint(self._model, directory, step)

    def detach(self) -> None:
        """See `Adapter.detach`."""
        self._outputs.clear()
        self._optimizers.remove()
        while self._handles:
            self._handles.pop().remove()

    def record_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """See `Adapter.record_loss`."""
        mode = self._mode()
        recording = None if mode is None else self._recorder.recording(mode)
        # An optimizer with a closure tries several weights; the first are those of this step.
        if recording is None or (recording.closure and not recording.first_batch):
            return
        for full, tensor in leaves(value, f"losses/{name}"):
            ask = recording.due.ask(full)
            if ask and self._keeper.is_scalar(tensor):
                weight = recording.weight(_batch(arguments))
                self._keeper.keep_scalar(recording, full, tensor, weight)
            elif ask and recording.first_batch:
                self._keep(recording, full, tensor, ask)

    def _mode(self) -> Mode | None:
        """Return the mode that the model runs in; None where it is no part of a training."""
        explicit = self._recorder.explicit_mode
        if explicit is not None:
            return explicit
        if not self._model.training:
            return "eval"
        # A forward in training mode without gradients is neither training nor evaluation.
        return "train" if torch.is_grad_enabled() else None

    def _before_forward(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        if self._outputs.there:
            self._outputs.clear()
        if self._recorder.quiet and self._model.training:
            return
        mode = self._mode()
        # Inside of a backward, it is checkpointing that calls the model again; a trace must show
        # no trace of us.
        if (
            mode is None
            or torch._C._current_graph_task_id() != -1
            or torch._C._get_tracing_state() is not None
        ):
            return
        if mode == "train":
            self._recorder.resume_training()
        else:
            self._session.stop_if_asked()
        recording = self._recorder.recording(mode)
        if recording is None:
            return
        recording.forwards += 1
        if mode != "train":
            recording.batch = _batch((args, kwargs)) or 1
        if recording.first_batch:
            if mode != "train":
                self._take_weights(recording)
            if recording.due.reaches("outputs"):
                self._outputs.install(recording)

    def _after_loss(self, _: nn.Module, args: Any, output: Any) -> None:
        if not self._recorder.quiet:
            self.record_loss(self._loss, output, args)

    def _before_update(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._recorder.quiet:
            return
        self._outputs.clear()
        if self._recorder.implicit_evaluation:
            self._session.shield.report(
                "the model is trained in eval mode, so its losses count as evaluation; if that is "
                "meant, put the training into `with hook.mode('train'):`"
            )
        self._recorder.resume_training()
        recording = self._recorder.recording("train")
        if recording is None:
            return
        self._take_weights(recording)
        # With a closure the gradients are yet to come.
        recording.closure = _closure(args, kwargs)
        if recording.closure:
            recording.forwards = 0
        else:
            self._take_gradients(recording, optimizer)

    def _after_update(self, optimizer: Optimizer, *_: Any) -> None:
        recording = None if self._recorder.quiet else self._recorder.recording("train")
        if recording is not None:
            if recording.closure:
                self._take_gradients(recording, optimizer)
            if not recording.forwards and "outputs" in recording.due.collections():
                self._session.shield.report(
                    "outputs are asked for, but no call of the watched "
                    f"{type(self._model).__name__} was seen; watch the very object that the "
                    "training calls, such as the one that torch.compile returned"
                )
        if self._session.leader is None:
            self._session.leader = self
        if self._session.leader is self:
            self._session.step_ended()

    def _take_weights(self, recording: Recording) -> None:
        due = recording.due
        if due.reaches("weights") or due.reaches("biases"):
            for parameter, name, _ in self._names.parameters():
                ask = due.ask(name)
                if ask and not isinstance(parameter, UninitializedParameter):
                    self._keep(recording, name, parameter, ask)

    def _take_gradients(self, recording: Recording, optimizer: Optimizer) -> None:
        due = recording.due
        # What a fused optimizer is given by a GradScaler: it unscales, or skips, by itself.
        found_inf = getattr(optimizer, "found_inf", None)
        if not due.reaches("gradients") or (found_inf is not None and found_inf.item()):
            return
        scale = getattr(optimizer, "grad_scale", None)
        for parameter, _, name in self._names.parameters():
            gradient = parameter.grad
            ask = due.ask(name)
            if ask and gradient is not None:
                true = gradient if scale is None else gradient / scale.to(gradient.device)
                self._keep(recording, name, true, ask)


def _check(loss: object, optimizer: object) -> None:
    """Raise `ConfigError` where loss or optimizer cannot be watched."""
    if loss is not None and not isinstance(loss, nn.Module):
        name = getattr(loss, "__name__", "…")
        raise ConfigError(
            f"loss: {loss!r} is no torch.nn.Module; wrap the function, `loss_fn = "
            f"hook.loss({name})`, or call hook.save('losses/{name}', value) in the training loop"
        )
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise ConfigError(
            f"optimizer: {optimizer!r} is no torch.optim.Optimizer; leave it out, and the one that "
            "updates the model is found"
        )


def _closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Say whether an optimizer step was called with a closure; its own self is args[0]."""
    return kwargs.get("closure") is not None or (len(args) > 1 and callable(args[1]))


def _batch(value: Any) -> int | None:
    """Return the length of the first tensor in a nesting that has one; None where none has."""
    return next((tensor.shape[0] for _, tensor in leaves(value) if tensor.ndim), None)
