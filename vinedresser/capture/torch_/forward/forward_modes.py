"""Classifying forwards of a torch model as training or evaluation."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.utils.data import RandomSampler, SequentialSampler

from vinedresser.capture.recording.recorder import Recorder
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.shield import Shield
from vinedresser.data.delivered import BatchInUse, Provider
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop
from vinedresser.store.step_record import Mode

__all__ = ["ForwardModes", "Running"]

# "open": the model is in eval mode, but an optimizer's step may follow.
Running = Mode | Literal["open"]


class ForwardModes:
    """Classifies the forwards of one model.

    Forwards that precede an optimizer's step are training in any mode: a forward with gradients in
    eval mode is open until such a step, or until a forward that is certainly training. After such a
    step, these forwards are training from the start. A forward in training mode without gradients
    is neither, unless a loss is computed from it without gradients: then it is an evaluation.

    Args:
        shield: guards the look at data loaders.

    Attributes:
        aside: the last forward was in training mode without gradients, outside of a block that
            sets the mode.
        trained_in_eval: the model was in eval mode at its optimizer's last step.
    """

    def __init__(self, model: nn.Module, recorder: Recorder, shield: Shield) -> None:
        self._model = model
        self._recorder = recorder
        self.aside = False
        self.trained_in_eval = False
        # A closure is being evaluated by an optimizer that needs no gradients.
        self._ungraded = False
        # The latest evaluation in training mode.
        self._evaluation: Recording | None = None
        self._rows = _LoadedRows(shield, recorder.batch)

    def remove(self) -> None:
        """Remove all hooks."""
        self._rows.end()

    def update_begins(self) -> None:
        """Note that an optimizer is about to update the model."""
        self.trained_in_eval = not self._model.training
        self._ungraded = False
        self._rows.trained()

    def closure_begins(self) -> None:
        """Note the start of the first evaluation of a closure."""
        self._ungraded = not torch.is_grad_enabled()

    def closure_ended(self) -> None:
        """Note its end."""
        self._ungraded = False

    def of_forward(self) -> Running | None:
        """Return the mode of a forward that begins now; None: neither."""
        graded = torch.is_grad_enabled() or self._ungraded
        explicit = self._recorder.explicit_mode
        self.aside = self._model.training and not graded and explicit is None
        if explicit is not None:
            return explicit
        if not self._model.training:
            if not graded:
                self._recorder.evaluates_rows(of_training=self._rows.of_training)
                return "eval"
            return "train" if self.trained_in_eval else "open"
        if graded:
            return "train"
        return "eval" if self._evaluates() else None

    def of_loss(self) -> Running | None:
        """Return the mode of a loss computed now; None: neither."""
        if self._recorder.explicit_mode is not None:
            return self._recorder.explicit_mode
        graded = torch.is_grad_enabled() or self._ungraded
        if not self._model.training:
            if not graded or self._recorder.implicit_evaluation:
                return "eval"
            return "train" if self.trained_in_eval else "open"
        if graded:
            return "train"
        return "eval" if self.aside or self._evaluates() else None

    def beside(self, leader: ForwardModes) -> Mode:
        """Return the mode of a forward if no optimizer updates the model, such as a teacher.

        Args:
            leader: modes of the model whose optimizer ends the steps; a teacher in eval mode is
                part of that model's training.
        """
        explicit = self._recorder.explicit_mode
        if explicit is not None:
            return explicit
        if leader._model.training:
            return "train"
        trains = leader.trained_in_eval and not self._recorder.implicit_evaluation
        return "train" if trains else "eval"

    def evaluates(self, recording: Recording) -> bool:
        """Note an evaluation in training mode; return whether it is new."""
        self.aside = False
        before, self._evaluation = self._evaluation, recording
        return before is not recording

    def _evaluates(self) -> bool:
        """Return whether an evaluation in training mode is open."""
        return self._evaluation is not None and self._recorder.evaluates(self._evaluation)


class _Rows(NamedTuple):
    """The rows that an iterator of a data loader returns.

    Attributes:
        dataset: the data set.
        sampler: what selects a part of its rows; None if all of them are returned.
    """

    dataset: weakref.ref[Any]
    sampler: weakref.ref[Any] | None

    def same(self, other: _Rows) -> bool:
        """Return whether these are the rows that another iterator returns."""
        if (self.sampler is None) != (other.sampler is None):
            return False
        pairs = [(self.dataset(), other.dataset())]
        if self.sampler is not None and other.sampler is not None:
            pairs.append((self.sampler(), other.sampler()))
        return all(one is not None and one is another for one, another in pairs)


class _LoadedRows(LoopListener):
    """Compares the data loader that this thread used last with that of the training.

    The rows are the same if the data set is, and if either all of it is loaded or the sampler is
    the same object.

    Args:
        shield: guards the look at data loaders.
        batch: the batch in use, which is forgotten when another data loader returns one.
    """

    def __init__(self, shield: Shield, batch: BatchInUse) -> None:
        self._batch = batch
        self._latest: _Rows | None = None
        self._trained: _Rows | None = None
        # An iterator has the same rows all the time.
        self._iterator: weakref.ref[Any] | None = None
        self._thread = threading.get_ident()
        self.end = listen_to_loop(self, shield.guard)

    @property
    def of_training(self) -> bool:
        """Whether the latest rows are those that the latest update was made with."""
        latest, trained = self._latest, self._trained
        return latest is not None and trained is not None and latest.same(trained)

    def trained(self) -> None:
        """Note that the latest rows are those of the training."""
        self._trained = self._latest

    def batch_awaited(self, iterator: Any) -> None:
        """See `LoopListener.batch_awaited`."""
        if not isinstance(iterator._dataset, Provider):
            self._batch.forget()
        known = self._iterator is not None and self._iterator() is iterator
        if not known and threading.get_ident() == self._thread:
            self._iterator = weakref.ref(iterator)
            self._latest = _rows_of(iterator)


def _rows_of(iterator: Any) -> _Rows | None:
    """Return the rows that an iterator returns; None if they cannot be known again."""
    indices = iterator._index_sampler
    sampler = getattr(indices, "sampler", indices)
    whole = type(sampler) in (SequentialSampler, RandomSampler)
    try:
        return _Rows(weakref.ref(iterator._dataset), None if whole else weakref.ref(sampler))
    except TypeError:
        # Such as a list.
        return None
