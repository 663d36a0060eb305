"""The adapter for PyTorch, which hooks a model, its loss and its optimizers."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from vinedresser.capture.adapters.adapter import Adapter, InputTaker
from vinedresser.capture.adapters.training_setup import TrainingSetup
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.torch_.asked_gradients import AskedGradients
from vinedresser.capture.torch_.checkpoint import save_checkpoint
from vinedresser.capture.torch_.comparisons import Comparisons
from vinedresser.capture.torch_.copies.torch_copier import TorchCopier
from vinedresser.capture.torch_.forward.active_dropout import ActiveDropout
from vinedresser.capture.torch_.forward.forward_hooks import ForwardHooks, is_elsewhere
from vinedresser.capture.torch_.forward.forward_modes import ForwardModes, Running
from vinedresser.capture.torch_.forward.missing_forward import report_missing_forward
from vinedresser.capture.torch_.guard.guard import guard_of
from vinedresser.capture.torch_.guard.injected_batch import InjectedBatch
from vinedresser.capture.torch_.losses.custom_losses import custom_function
from vinedresser.capture.torch_.losses.losses import Losses, batch_size
from vinedresser.capture.torch_.losses.unreported_losses import UnreportedLosses
from vinedresser.capture.torch_.model_state import ModelState
from vinedresser.capture.torch_.modules import module_info
from vinedresser.capture.torch_.optimizers.closures import first_evaluation
from vinedresser.capture.torch_.optimizers.missing_steps import Overdue, UnseenSteps, share
from vinedresser.capture.torch_.optimizers.optimizer_steps import OptimizerHooks
from vinedresser.capture.torch_.optimizers.remade_optimizers import MADE, RemadeOptimizers
from vinedresser.capture.torch_.plain_steps import PlainSteps, ProgressOf
from vinedresser.capture.torch_.rank_state import RankState
from vinedresser.capture.torch_.setup import SetupNotes
from vinedresser.capture.torch_.training_state import TrainingState
from vinedresser.capture.torch_.weights.restored_weights import RestoredWeights
from vinedresser.capture.torch_.worker_states import WORKERS
from vinedresser.errors import ConfigError
from vinedresser.frameworks.torch_.hidden_hooks import hide_hooks
from vinedresser.frameworks.torch_.module_calls import ModuleHook, Removable, before_calls
from vinedresser.frameworks.torch_.names import Names, unwrapped
from vinedresser.frameworks.torch_.optimizer_steps import Arguments
from vinedresser.frameworks.torch_.optimizers import has_closure
from vinedresser.store.collections.modules import ModuleInfo


class TorchAdapter(Adapter):
    """Watches one torch model.

    A step in which nothing is due costs one call before the model's forward and two around the
    optimizer's step. Tensors are captured at the right moment: buffers before the first forward;
    weights, gradients and optimizer state before the update, as the optimizer consumes them
    (reduced over ranks, clipped, unscaled); inputs and outputs before they can be overwritten.
    Parameters without a known optimizer are captured at the end of the step.

    Args:
        session: session of the hook.
        model: the object that the training calls, with its wrappers (compiled, data parallel).
        loss: loss module, or None if there is none or `vinedresser.capture.Hook.loss` is used.
        optimizer: optimizer whose steps count, or several in order; None: the first to update it.
        name: prefix of all names of the model, or None.

    Raises:
        ConfigError: the loss or an optimizer cannot be watched.
    """

    framework = "torch"
    custom_function = staticmethod(custom_function)
    _optimizers: OptimizerHooks

    def __init__(
        self,
        session: Session,
        model: nn.Module,
        loss: nn.Module | None,
        optimizer: Optimizer | Sequence[Optimizer] | None,
        name: str | None = None,
    ) -> None:
        _check_loss(loss)
        given = _given_optimizers(optimizer)
        self.versions = {"torch": torch.__version__}
        self._session = session
        self._recorder = session.recorder
        self._root = model
        self._model = unwrapped(model)
        self._names = Names(self._model, name)
        self._notes = SetupNotes(self._names, session.shield)
        self._copier = session.copier(TorchCopier)
        self._progress = ProgressOf()
        self._modes = ForwardModes(self._model, self._recorder, session.shield)
        guard = session.shield.guard
        keep = guard("keeping a tensor", self._copier.keep, names=1)
        keep_state = guard("keeping a tensor", self._copier.keep_parameter, names=1)
        self._losses = Losses(self._copier, keep)
        keep_states = guard("keeping tensors", self._copier.keep_parameters)
        self._state = ModelState(self._names, self._copier, keep_state, keep_states)
        # A circle would keep the model in memory until Python looks for circles.
        weak = weakref.proxy(self)
        optimized = lambda: weak._optimizers.parameters()  # noqa: E731, PLW0108 (set below)
        self._running = TrainingState(model, self._names, self._copier, session, optimized)
        self._ranks = RankState(model, self._names, self._copier, keep, session)
        self._plain = PlainSteps(
            self._model,
            self._recorder,
            self._modes,
            progress=self._progress,
            running=self._running,
            gradients=AskedGradients(self._names, self._copier.live),
            beside=lambda: weak._leader_beside() is not None,
        )
        self._hooks = ForwardHooks(model, self._names, keep, self._recorder.is_open, session.shield)
        self._dropout = ActiveDropout(model, self._names, self._hooks, session.shield)
        # torch.compile must not trace the hooks.
        skip = torch.compiler.is_compiling
        before = guard("the start of a forward", self._before_forward, skip=skip)
        hide_hooks()
        calls = before_calls(model, before, guard("the end of a forward", self._hooks.end))
        self._comparisons = Comparisons(model, self._losses, self._progress, self._notes, session)
        self._remade = RemadeOptimizers()
        MADE.start()
        WORKERS.start()
        self._restored = RestoredWeights(
            self._model,
            lambda breach: weak._saw_breach("nothing_restored", breach),
            guard,
        )
        self._handles: list[Removable] = [
            *(self._modes, calls, self._notes, self._comparisons.forwards, self._restored)
        ]
        self.guard = guard_of(session, model, self._names, self._handles)
        session.batch_takers.append(InjectedBatch(self._model, loss).answer)
        if loss is not None:
            session.losses_reported = True
            self._loss = f"{self._names.prefix}{type(unwrapped(loss)).__name__}"
            self._notes.saw_loss(self._loss, loss)
            after = ModuleHook(guard("the loss", self._after_loss, skip=skip), loss)
            self._handles.append(loss.register_forward_hook(after, with_kwargs=True))
        self._optimizers = OptimizerHooks(
            self._model,
            given,
            guard("the start of an optimizer step", self._before_update),
            guard("the end of an optimizer step", self._after_update),
            found=guard("a new optimizer", self._found),
            shield=session.shield,
        )
        self._complete = guard("the end of a step", self._take_rest)
        self._recorder.completing.append(self._complete)
        self._overdue: Overdue[TorchAdapter] = Overdue()
        self._unseen = UnseenSteps(self._model, self._recorder, session.shield)
        if given:
            session.leader = self

    def names(self) -> list[str]:
        """See `Adapter.names`."""
        known = self._optimizers.known()
        running = [*self._running.names(), *self._ranks.names()]
        return [*self._state.names(known), *running, *self._dropout.names]

    def modules(self) -> dict[str, ModuleInfo]:
        """See `Adapter.modules`."""
        return {
            path: module_info(module, root=path == self._names.root)
            for path, module in self._names.modules()
        }

    def setup(self) -> TrainingSetup:
        """See `Adapter.setup`."""
        # A loop without an optimizer does not say which parameters it updates.
        begun = self._session.leader is not None and bool(self._recorder.steps)
        return self._notes.setup(begun=begun)

    def path_of(self, module: Any) -> str | None:
        """See `Adapter.path_of`."""
        return next((path for path, one in self._names.modules() if one is module), None)

    def checkpoint(self, directory: Path, step: int) -> None:
        """See `Adapter.checkpoint`."""
        save_checkpoint(self._root, directory, step, self._names.prefix.removesuffix("."))

    def look(self) -> None:
        """See `Adapter.look`."""
        leader = self._session.leader
        if not isinstance(leader, TorchAdapter) or not leader._overdue.others:
            self._unseen.look()

    def find_losses(self, name: str | None, taker: InputTaker | None = None) -> None:
        """Have losses recorded that the script does not pass; see `UnreportedLosses.watch`."""
        self._session.shared(UnreportedLosses).watch(self._root, name, taker or self, self._notes)

    def detach(self) -> None:
        """See `Adapter.detach`."""
        self.look()
        self._session.shared(UnreportedLosses).close()
        if not self._recorder.steps:
            self._overdue.report(self._session.shield)
        self._hooks.clear()
        self._ranks.detach()
        self._optimizers.remove()
        self._running.detach(stepped=self._unseen.any_seen or bool(self._overdue.others))
        if self._complete in self._recorder.completing:
            self._recorder.completing.remove(self._complete)
        while self._handles:
            self._handles.pop().remove()

    def record_loss(self, name: str, value: Any, arguments: tuple[Any, ...]) -> None:
        """See `LossTaker.record_loss`."""
        if self.guard is not None:
            self.guard.took_loss(name, value, arguments)
        if self._plain.take_loss(name, value):
            return
        # Callers that have only the value pass it as the argument as well.
        others = tuple(argument for argument in arguments if argument is not value)
        recording = self.record_value(name, value, others)
        if recording is not None:
            self._comparisons.take_call(recording, name, others)

    def inputs_due(self, *, several: bool = False) -> Recording | None:
        """See `InputTaker.inputs_due`."""
        if self._recorder.quiet or self._recorder.plain is not None:
            return None
        return self._comparisons.due(self._of_loss(), several=several)

    def keep_gradients(self) -> None:
        """See `GradientKeeper.keep_gradients`."""
        if not self._optimizers.known():
            self._state.keep_gradients()

    def record_inputs(
        self, recording: Recording, name: str, inputs: tuple[Any, ...], *, paired: bool = True
    ) -> None:
        """See `InputTaker.record_inputs`."""
        if self._recorder.is_open(recording):
            self._comparisons.take(recording, name, inputs, paired=paired)

    def record_value(self, name: str, value: Any, batch: Any) -> Recording | None:
        """Record the value of a loss without its arguments.

        Args:
            value: value of the loss, a nesting of tensors.
            batch: batch of the loss, a nesting of tensors [batch, ...].

        Returns:
            The recording of the value, or None if there is none.
        """
        recording = self._of_loss()
        # An optimizer with a closure tries several weights; record only the first.
        if recording is None or recording.again:
            return None
        first = self._progress(recording).first_losses
        size = None if recording.mode == "train" else batch_size(batch)
        self._losses.take_value(recording, name, value, size, first_batch=first)
        return recording

    def _leader_beside(self) -> ForwardModes | None:
        """Return the modes of the trained model if no optimizer updates this one, else None."""
        leader = self._session.leader
        if not isinstance(leader, TorchAdapter) or leader._model is self._model:
            return None
        return None if self._optimizers.known() else leader._modes

    def _recording(self, running: Running | None) -> Recording | None:
        """Return the recording of the current mode, or None."""
        if running is None or running == "open":
            return self._recorder.undecided() if running else None
        return self._recorder.recording(running)

    def _of_loss(self) -> Recording | None:
        """Return the recording of a loss computed now, or None."""
        leader, modes = self._leader_beside(), self._modes
        recording = self._recording(modes.beside(leader) if leader else modes.of_loss())
        if recording is not None and modes.aside and modes.evaluates(recording):
            # Its forward was not yet known to be part of an evaluation.
            self._progress(recording).forwards += 1
            self._running.begin(recording)
        return recording

    def _found(self, optimizer: Optimizer) -> None:
        remade = self._remade.began(optimizer)
        self._saw_breach("optimizer_made_anew", remade)
        if self._notes.saw_optimizer(optimizer):
            self._session.newly_set_up = True
        if self.guard is not None:
            self.guard.saw(optimizer)

    def _before_forward(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        if self._hooks.there:
            self._hooks.clear()
        self._recorder.batch.forward_begins()
        if self._model.training and torch.is_grad_enabled():
            self._ranks.called(args, kwargs)
        if self._plain.forward_begins():
            return
        if self._recorder.quiet and self._model.training:
            self._recorder.forward_begins()
            self._modes.aside = not torch.is_grad_enabled()
            return
        # A trace must not contain the hooks.
        if is_elsewhere() or torch._C._get_tracing_state() is not None:
            return
        leader = self._leader_beside()
        mode = self._modes.beside(leader) if leader else self._modes.of_forward()
        if mode == "train":
            self._recorder.forward_begins()
        elif mode in ("eval", "predict"):
            self._session.stop_if_asked()
        self._running.called(mode, args, kwargs)
        recording = self._recording(mode)
        if recording is not None:
            self._record_forward(recording, args, kwargs)

    def _record_forward(self, recording: Recording, args: Any, kwargs: Any) -> None:
        """Record the start of a forward, and install hooks for the tensors due in it."""
        progress = self._progress(recording)
        progress.begin_forward(self._comparisons.forwards_of(recording), args, kwargs)
        recording.note_batch(self._recorder.batch.origins)
        size = batch_size((args, kwargs)) or 1
        if recording.mode != "train":
            recording.batch = size
        if progress.first_batch:
            recording.saw_rows(size)
            self._running.begin(recording, stepped=self._optimizers.last in progress.stepped)
            self._state.take_buffers(recording)
            if recording.mode != "train":
                self._state.take_weights(recording)
            else:
                self._ranks.begin(recording, args, kwargs)
            self._hooks.install(recording, args, kwargs)
        if recording.mode == "eval":
            self._dropout.called(recording, args, kwargs)

    def _after_loss(self, _: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        arguments = (*args, *kwargs.values())
        self._session.newly_set_up |= self._notes.saw_loss_value(self._loss, output, arguments)
        if not self._recorder.quiet or self._modes.aside:
            self.record_loss(self._loss, output, arguments)
        elif self.guard is not None:
            self.guard.took_loss(self._loss, output, arguments)

    def _before_update(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Arguments | None:
        self._unseen.any_seen = True
        self._modes.update_begins()
        if self._recorder.quiet or self._plain.update_begins(optimizer, args, kwargs):
            return None
        self._hooks.clear()
        if self._recorder.timing is not None:
            self._recorder.timing.update_begins()
        if self._modes.trained_in_eval:
            self._recorder.claim()
        self._recorder.resume_training()
        recording = self._recorder.recording("train")
        progress = None if recording is None else self._progress(recording)
        # Only the first step of an optimizer in a train step is recorded.
        if recording is None or progress is None or not progress.begins_step(optimizer):
            return None
        # With a closure, the gradients are computed later.
        closure = has_closure(args, kwargs)
        groups = functools.partial(self._optimizers.groups_before, optimizer)
        self._state.take_update(recording, optimizer, groups, gradients=not closure)
        self._ranks.take_consumed(optimizer)
        if not closure:
            return None
        recording.closure = True
        progress.forwards = 0
        return first_evaluation(args, kwargs, recording, self._modes, self._session.shield)

    def _after_update(self, optimizer: Optimizer, *_: Any) -> None:
        session, recorder = self._session, self._recorder
        self._remade.stepped(optimizer)
        self._restored.stepped()
        self._saw_breach("equal_workers", WORKERS.breach)
        nothing = recorder.quiet or recorder.plain is not None
        recording = None if nothing else recorder.recording("train")
        if recording is not None and recording.closure:
            self._state.take_gradients(recording, optimizer)
        if recording is not None:
            recording.again = False
            self._state.take_change(recording, optimizer)
        if session.leader is None:
            session.leader = self
        if session.leader is self and self._optimizers.ends_step(optimizer):
            if recording is not None and not self._progress(recording).forwards:
                report_missing_forward(recording, self._root, self._session.shield)
            self._overdue.ended(optimizer)
            session.step_ended()
        elif isinstance(session.leader, TorchAdapter):
            session.leader._other_stepped(optimizer, self)

    def _take_rest(self, recording: Recording | None) -> None:
        """Capture the rest of a step that ends; None is a plain step, which has no rest."""
        if recording is None:
            self._running.ended(self._progress.plain_forwards(self._recorder.steps))
            return
        known = self._optimizers.known()
        progress = self._progress(recording)
        if not known and not progress.forwards:
            # No forward can have changed them.
            self._state.take_buffers(recording)
        if recording.closure:
            for optimizer in progress.stepped:
                self._state.take_gradients(recording, optimizer)
        self._state.take_rest(recording, progress.stepped, known)
        stepped = self._session.leader is None or self._optimizers.last in progress.stepped
        self._running.end(recording, progress.forwards, stepped=stepped)
        self._ranks.end(recording)
        self._hooks.finish(recording)

    def _saw_breach(self, rule: str, breach: dict[str, Any] | None) -> None:
        if breach is not None and self._notes.saw_breach(rule, breach, self._recorder.steps):
            self._session.newly_set_up = True

    def _other_stepped(self, optimizer: Optimizer, adapter: TorchAdapter) -> None:
        """Note the step of an optimizer that does not end the train step."""
        if self._overdue.returns(optimizer):
            adapter._lead(optimizer)
            adapter._overdue.ended(optimizer)
            self._session.step_ended()
            return
        assumed = self._session.detected
        awaited = self._optimizers.last, self._model
        instead = self._overdue.stepped(optimizer, adapter, *awaited, assumed=assumed)
        if instead is not None:
            self._give_up(*instead)

    def _give_up(self, instead: Optimizer, adapter: TorchAdapter) -> None:
        """Let another optimizer end steps, since the present one takes none."""
        last = self._optimizers.last
        if not self._session.detected:
            self._overdue.report(self._session.shield, instead)
        self._overdue.ended()
        adapter._lead(instead)
        if self._session.detected and last is not None and not share(last, instead):
            adapter._overdue.replaces(last)

    def _lead(self, optimizer: Optimizer) -> None:
        """Let the steps of an optimizer of this model end the train steps."""
        self._session.leader = self
        self._optimizers.end_with(optimizer)


def _check_loss(loss: object) -> None:
    """Check that a loss can be watched."""
    scripted = isinstance(loss, torch.jit.ScriptModule)
    if loss is not None and (scripted or not isinstance(loss, nn.Module)):
        name = getattr(loss, "__name__", "…")
        what = "is TorchScript" if scripted else "is not a torch.nn.Module"
        raise ConfigError(
            f"loss: {loss!r} {what}; wrap the function, `loss_fn = "
            f"hook.loss({name})`, or call hook.save('losses/{name}', value) in the training loop"
        )


def _given_optimizers(given: object) -> list[Optimizer]:
    """Return the given optimizers as a list.

    Args:
        given: an optimizer, a list or tuple of optimizers, or None.
    """
    some = given if isinstance(given, (list, tuple)) else [] if given is None else [given]
    for one in some:
        if not isinstance(one, Optimizer):
            raise ConfigError(
                f"optimizer: {one!r} is not a torch.optim.Optimizer; without this argument, the "
                "optimizer is found automatically"
            )
    return list(some)
