"""The steps of a trial in the process of the script."""

from __future__ import annotations

import hashlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn
from torch.optim import Optimizer

from vinedresser.errors import ConfigError
from vinedresser.frameworks.torch_.codec import digest
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.frameworks.torch_.nonfinite import gradients_of, scaler_decides
from vinedresser.replay.batch import Batch
from vinedresser.replay.factory import Parts
from vinedresser.replay.recorded import RecordedStep
from vinedresser.replay.restoring import restore
from vinedresser.replay.script.settings import (
    ScriptChange,
    ScriptResult,
    TrialResult,
    TrialSettings,
)
from vinedresser.replay.script.watching import WHOSE, ScriptStep
from vinedresser.replay.what_if.change import Change, Facts
from vinedresser.replay.what_if.changeable import Changeable
from vinedresser.replay.what_if.changes import changes_for, labels_are_apart, shuffle_of
from vinedresser.replay.what_if.functions_seen import FunctionsSeen, Network
from vinedresser.replay.what_if.precision import HalfSeen
from vinedresser.replay.what_if.results import Course
from vinedresser.replay.what_if.training import distance, finite_norm

_SEED = 0
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Events of `sys.addaudithook` whose first argument is the path that changes.
_CHANGING = ("os.remove", "os.rename", "os.rmdir", "os.truncate", "os.mkdir", "shutil.rmtree")


class ScriptTrial:
    """Takes steps in the script's own loop, from the recorded one on; see `StepUser`.

    The learning rates stay those of the recorded state, or what a change makes of them. The trial
    ends before the script writes a file: its results are those of a whole training.

    Args:
        end: ends the process with a result.
    """

    needs_all = widens = True

    def __init__(
        self, settings: TrialSettings, step: RecordedStep, end: Callable[[ScriptResult], NoReturn]
    ) -> None:
        self._settings, self._step, self._end = settings, step, end
        self._course = Course()
        self._training: Changeable | None = None
        self._changes: list[Change] = []
        self._parts = Parts({})
        self._rates: list[Any] = []
        self._batches: list[str] = []
        self._inputs = hashlib.sha256()
        self._half = HalfSeen()
        self._functions: FunctionsSeen | None = None
        self._network: Network | None = None
        self._shuffle: Change | None = None
        self._several = len(step.models) > 1
        self._accumulates = self._random = self._answering = self._alternates = False
        self._deadline = math.inf
        # The same batches in each trial, also of a script without a seed.
        torch.manual_seed(_SEED)

    @contextmanager
    def within(self, watched: ScriptStep) -> Iterator[None]:
        """See `StepUser.within`."""
        self._begin(watched)
        with self._seen(), self._change():
            training = self._training
            self._rates = [deepcopy(group["lr"]) for group in training.groups] if training else []
            yield

    def done(self, watched: ScriptStep, optimizer: Optimizer | None) -> None:
        """See `StepUser.done`."""
        first, course = not watched.steps, self._course
        losses = watched.losses.losses(self._step.losses) if first else watched.losses.following()
        if not losses:
            self.failed("its loss was not found: no scalar with a gradient follows its model")
        if first:
            self._random = not torch.equal(torch.get_rng_state(), self._step.random["torch"])
            if self._functions is not None and not self._several:
                self._network = self._functions.ended()
        elif watched.stale and not self._several:
            self._accumulates = True
        self._alternates = watched.alternates
        self._batches.append(self._inputs.hexdigest())
        self._inputs = hashlib.sha256()
        loss = sum(float(one) for one in losses) / len(losses)
        if not (self._is_finite(optimizer) and math.isfinite(loss)):
            course.broke = len(course.losses)
            self._finish()
        course.losses.append(loss)
        if len(course.losses) == self._settings.steps:
            self._finish()
        if time.monotonic() > self._deadline:
            course.out_of_time = True
            self._finish()
        self._prepare_update(optimizer)

    def failed(self, why: str) -> NoReturn:
        """See `StepUser.failed`."""
        self._end(ScriptResult(failure=why))

    def prepared(self, batch: Batch) -> Batch:
        """See `StepUser.prepared`."""
        if self._training is None:
            return batch
        # The same in each precision, without the casts of the trial.
        with torch._C.DisableTorchFunction():
            # The inputs of one model may depend on the weights of another.
            for _, one in leaves(batch.loaded if self._several else (batch.args, batch.kwargs)):
                narrow = one.detach().float() if one.is_floating_point() else one
                self._inputs.update(digest(narrow).encode())
        return self._training.prepare(batch)

    def begins(self, watched: ScriptStep) -> None:
        """See `StepUser.begins`."""
        if self._training is not None and self._training.clears and watched.model is not None:
            for parameter in watched.model.parameters():
                parameter.grad = None

    def joining(self, _: nn.Module) -> AbstractContextManager[object]:
        """See `StepUser.joining`; a trial begins once all models were seen."""
        return nullcontext()

    def passes(self, optimizer: Optimizer) -> None:
        """See `StepUser.passes`."""
        if not self._is_finite(optimizer):
            self._course.broke = len(self._course.losses)
            self._finish()
        self._prepare_update(optimizer)

    def evaluates(self, optimizer: Optimizer) -> None:
        """See `StepUser.evaluates`."""
        # How often depends on the weights; the batch is that of the first evaluation.
        self._inputs = hashlib.sha256()
        # A line search may try weights without finite gradients, and take others.
        self._prepare_update(optimizer)

    def ended(self) -> ScriptResult:
        """Return the result of a script that ends by itself, or with an error."""
        error = getattr(sys, "last_value", None)
        if error is not None:
            words = f"{error}".strip().split("\n")[0]
            self._course.failed = words or type(error).__name__
            return self._result()
        return self._result("the script ends")

    def _begin(self, watched: ScriptStep) -> None:
        """Restore the optimizers, and find the changes that apply."""
        model = watched.model
        assert model is not None
        models = {name: watched.parts.models[name] for name in self._step.models}
        # In the order of the recorded ones: that of several models is recorded for each of them.
        optimizers: list[Optimizer] = []
        for name, one in models.items():
            found = _optimizers_of(one, watched.optimizers)
            wanted = len(self._step.models[name].optimizers)
            if len(found) != wanted:
                raise ConfigError(
                    f"it has made {len(found)} optimizers of a model when "
                    f"the model is first called, and the snapshot has {wanted}; use --factory"
                )
            optimizers += found
        self._parts = Parts(models, optimizers)
        restore(self._parts, self._step, WHOSE)
        self._training = training = Changeable(model, list(dict.fromkeys(optimizers)))
        self._course, self._batches, self._inputs = Course(), [], hashlib.sha256()
        first = self._step.batches[0]
        self._shuffle = None
        if self._settings.shuffled:
            self._shuffle = shuffle_of(training, first) if labels_are_apart(first) else None
        if self._settings.facts is not None:
            self._changes = changes_for(
                training, list(models.values()), first, _facts(self._settings.facts)
            )
        elif self._shuffle is not None:
            self._changes = [self._shuffle]
        if self._deadline == math.inf:
            self._deadline = time.monotonic() + self._settings.seconds
            _before_writes(self._writes)

    @contextmanager
    def _seen(self) -> Iterator[None]:
        """Note what the unchanged steps compute."""
        if self._settings.facts is not None or self._training is None:
            yield
            return
        self._functions = FunctionsSeen(self._training.model)
        first = self._step.batches[0]
        with self._half.watching(), self._functions.watching((first.args, first.kwargs)):
            yield

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Make the change that is tried."""
        if not self._settings.shuffled and self._settings.facts is None:
            yield
            return
        if self._settings.change >= len(self._changes):
            self._finish()
        change = self._changes[self._settings.change]
        also = self._shuffle if self._shuffle is not change else None
        with change.within(), also.within() if also else nullcontext():
            yield

    def _is_finite(self, optimizer: Optimizer | None) -> bool:
        """Note the norm of the gradients of an update; return whether they are finite."""
        if optimizer is None or scaler_decides(optimizer):
            return True
        norm = finite_norm(gradients_of(optimizer))
        self._course.norm = max(self._course.norm, norm or 0.0)
        return norm is not None

    def _prepare_update(self, optimizer: Optimizer | None) -> None:
        """Make the update that follows one of the trial."""
        training = self._training
        if optimizer is None or training is None:
            return
        for group, rate in zip(training.groups, self._rates, strict=True):
            group["lr"] = deepcopy(rate)
        if not self._settings.updates:
            # Without a gradient, there is no update, and the step can end as usual.
            optimizer.zero_grad()
        for one in training.before_update:
            one(gradients_of(optimizer))

    def _writes(self, path: str) -> None:
        # Not what happens while the process answers.
        if not self._answering:
            self._finish(f"the script writes {path}")

    def _finish(self, ended: str = "") -> NoReturn:
        self._end(self._result(ended))

    def _result(self, ended: str = "") -> ScriptResult:
        self._answering = True
        course = self._course
        if ended:
            course.out_of_time = True
        updates = max(len(course.losses), 1)
        return ScriptResult(
            trial=TrialResult(
                course,
                ended,
                self._batches,
                distance(self._parts, self._step) / updates,
                "" if self._half.dtype is None else str(self._half.dtype).removeprefix("torch."),
                self._accumulates,
                self._random,
                self._alternates,
                [
                    ScriptChange(
                        change.kind,
                        change.words,
                        change.control,
                        change.values,
                        change.network,
                        change.learns,
                    )
                    for change in self._changes
                ],
                self._network,
            )
        )


def _optimizers_of(model: nn.Module, optimizers: list[Optimizer]) -> list[Optimizer]:
    """Return the optimizers that have parameters of a model."""
    ours = set(map(id, model.parameters()))
    return [
        optimizer
        for optimizer in optimizers
        if any(id(each) in ours for group in optimizer.param_groups for each in group["params"])
    ]


def _facts(table: dict[str, Any]) -> Facts:
    half, network = table["half"], table["network"]
    return Facts(
        **{
            **table,
            "half": getattr(torch, half) if half else None,
            "network": network and Network.from_json(network),
        }
    )


def _before_writes(listener: Callable[[str], None]) -> None:
    """Call a listener with the path before this process writes a file, or makes or removes one.

    Files in the temporary directory are not the script's, nor are devices, unless it lies or runs
    there itself. What libraries write without Python is not noticed, except by `torch.save`.

    Args:
        listener: called in the thread that writes.
    """
    own, temporary = os.getpid(), tempfile.gettempdir()
    ours = [os.getcwd(), os.path.dirname(os.path.abspath(sys.argv[0]))]
    # Python's own caches of modules that are imported later.
    sys.dont_write_bytecode = True

    def told(path: Any) -> None:
        if os.getpid() != own or isinstance(path, int):
            return
        place = os.path.abspath(os.fsdecode(path))
        if any(_inside(place, one) for one in ours) or not any(
            _inside(place, one) for one in (temporary, "/dev", "/proc")
        ):
            listener(os.path.relpath(place))

    def audited(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & _WRITING:
                told(path)
        elif event in _CHANGING:
            told(args[0])

    sys.addaudithook(audited)
    save = torch.save

    def saving(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, str | Path):
            told(f)
        return save(obj, f, *args, **kwargs)

    torch.save = saving


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
