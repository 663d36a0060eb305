"""Recording what the losses of a step compared."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.torch_.forward.sequence import ForwardSequence
from vinedresser.capture.torch_.losses.losses import Losses, comparison_due, labels_pairs
from vinedresser.capture.torch_.losses.several_forwards import call_of_several
from vinedresser.capture.torch_.plain_steps import ProgressOf, compares_numbers
from vinedresser.capture.torch_.setup import SetupNotes
from vinedresser.frameworks.torch_.losses.output_activations import activation_of
from vinedresser.frameworks.torch_.modes import WithoutModes
from vinedresser.frameworks.torch_.nesting import leaves


class Comparisons:
    """Records predictions and labels, those of a step with several forwards only if certain.

    Args:
        model: the object that the training calls.
        losses: captures them.
        progress: progress of the model.
        notes: the observed setup of the training.

    Attributes:
        forwards: the forwards of the model.
    """

    def __init__(
        self,
        model: nn.Module,
        losses: Losses,
        progress: ProgressOf,
        notes: SetupNotes,
        session: Session,
    ) -> None:
        self.forwards = ForwardSequence(model, session.shield)
        self._losses = losses
        self._progress = progress
        self._notes = notes
        self._session = session

    def forwards_of(self, recording: Recording) -> ForwardSequence | None:
        """Return the forwards of the model; None if nothing of a loss is due in a recording."""
        return self.forwards if comparison_due(recording) else None

    def due(self, recording: Recording | None, *, several: bool) -> Recording | None:
        """Return a recording if the predictions or labels of a loss computed now are due in it.

        Args:
            recording: the current recording, or None.
            several: see `InputTaker.inputs_due`.
        """
        if recording is None or self._progress(recording).first_losses == several:
            return None
        if several and (recording.mode != "train" or recording.again):
            return None
        return recording if comparison_due(recording) else None

    def take_call(self, recording: Recording, name: str, arguments: tuple[Any, ...]) -> None:
        """Record the arguments of a call of a loss.

        Args:
            recording: receives them.
            arguments: nestings of tensors.
        """
        if recording.mode == "eval":
            self._take_accuracy(recording, name, arguments)
            self._losses.take_first_label(recording, name, arguments)
        if self._progress(recording).first_losses:
            self.take(recording, name, arguments, paired=True)
        elif self.due(recording, several=True) is not None:
            given = [[one for _, one in leaves(argument)] for argument in arguments]
            compared = [found for found in given if found]
            if labels_pairs(compared):
                self.take(recording, name, arguments, paired=False)
            elif [len(found) for found in compared[:2]] == [1, 1]:
                self._take_certain(recording, name, compared[0][0], compared[1][0])

    def take(
        self, recording: Recording, name: str, inputs: tuple[Any, ...], *, paired: bool
    ) -> None:
        """Record predictions and labels.

        Args:
            recording: receives them.
            paired: see `InputTaker.record_inputs`.
        """
        if not comparison_due(recording):
            return
        unpaired = self._notes.saw_labels(name, paired=paired)
        if unpaired is not None:
            _, predictions = next(iter(leaves(inputs)), ("", None))
            activation, _ = activation_of(getattr(predictions, "grad_fn", None))
            self._session.newly_set_up |= unpaired | self._notes.saw_predictions(name, activation)
            self._losses.take_arguments(recording, name, inputs)
            if recording.mode == "train":
                self._take_accuracy(recording, name, inputs)

    def _take_accuracy(self, recording: Recording, name: str, arguments: tuple[Any, ...]) -> None:
        self._losses.take_accuracy(recording, name, arguments, self._notes.ignored_label(name))

    def _take_certain(
        self, recording: Recording, name: str, predictions: Tensor, labels: Tensor
    ) -> None:
        """Record the arguments of a call in a step with several forwards if they are certain."""
        if labels.requires_grad:
            return
        with WithoutModes():
            numbers = compares_numbers(recording)
            paired = call_of_several(predictions, labels, numbers=numbers)
        if paired is not None:
            self.take(recording, name, (predictions, labels), paired=paired)
