"""Capturing losses, predictions and labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.torch_.copies.torch_copier import Keep, TorchCopier
from vinedresser.frameworks.torch_.modes import WithoutModes
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.store.collections.collection import ACCURACY, FIRST_LABEL

__all__ = ["Losses", "batch_size", "comparison_due", "is_loss", "labels_pairs"]


class Losses:
    """Captures the return values and arguments of losses.

    Args:
        copier: copies single numbers.
        keep: shielded `TorchCopier.keep`.
    """

    def __init__(self, copier: TorchCopier, keep: Keep) -> None:
        self._copier = copier
        self._keep = keep
        # Losses that compare outputs with each other: whether they have a label for each pair.
        self._of_outputs: dict[str, bool] = {}

    def take_value(
        self, recording: Recording, name: str, value: Any, batch: int | None, *, first_batch: bool
    ) -> None:
        """Capture the value of a loss.

        Args:
            recording: receives the value.
            value: nesting of tensors; numbers are averaged over batches, of others the first batch
                is kept.
            batch: number of samples; None: unknown.
            first_batch: this is the recording's first batch.
        """
        for full, tensor in leaves(value, f"losses/{name}"):
            ask = recording.due.ask(full)
            if ask and self._copier.is_scalar(tensor):
                self._copier.keep_scalar(recording, full, tensor, recording.weight(batch))
            elif ask and first_batch:
                self._keep(recording, full, tensor, ask)

    def take_arguments(self, recording: Recording, name: str, arguments: tuple[Any, ...]) -> None:
        """Capture predictions and labels: the first and second argument that contain tensors.

        Losses of two outputs with gradients, such as those of pairs and triplets, compare no
        predictions with labels: only the labels of pairs are captured, a third argument [rows].

        Args:
            recording: receives them.
            arguments: arguments of the loss, nestings of tensors.
        """
        if not comparison_due(recording):
            return
        given = [found for argument in arguments if (found := list(leaves(argument)))][:3]
        compared = given[:2]
        if len(compared) > 1 and any(one.requires_grad for _, one in compared[1]):
            # Evaluations compute no gradients.
            self._of_outputs[name] = labels_pairs([[one for _, one in found] for found in given])
        if self._of_outputs.get(name):
            self._keep_due(recording, "labels", name, given[2])
        if name in self._of_outputs:
            return
        for kind, found in zip(("predictions", "labels"), compared, strict=False):
            self._keep_due(recording, kind, name, found)

    def take_accuracy(
        self, recording: Recording, name: str, arguments: tuple[Any, ...], ignored: int
    ) -> None:
        """Capture the share of rows whose largest prediction is that of their class.

        Only of predictions [rows, classes] and class numbers [rows], as of a cross-entropy.

        Args:
            recording: receives the share.
            arguments: arguments of the loss, nestings of tensors.
            ignored: label of rows that the loss leaves out.
        """
        full = f"{ACCURACY}{name}"
        if name in self._of_outputs or not recording.due.ask(full):
            return
        given = [[one for _, one in leaves(argument)] for argument in arguments]
        compared = [found for found in given if found][:2]
        if [len(found) for found in compared] != [1, 1]:
            return
        (predictions,), (labels,) = compared
        if not type(predictions) is type(labels) is Tensor:
            # Those of a tensor distributed over ranks would have to be gathered.
            return
        if labels.dtype != torch.int64 or labels.shape != predictions.shape[:1]:
            return
        if predictions.ndim != 2 or predictions.shape[1] < 2 or not len(labels):
            return
        with torch.no_grad(), WithoutModes():
            counted = (labels != ignored).sum()
            right = (predictions.argmax(1) == labels).sum() / counted.clamp(min=1)
            # On a device the number would have to be waited for.
            rows = len(labels) if labels.is_cuda else int(counted)
            if rows:
                self._copier.keep_scalar(recording, full, right, recording.weight(rows))

    def take_first_label(self, recording: Recording, name: str, arguments: tuple[Any, ...]) -> None:
        """Capture the share of the labels of an evaluation that equal its first one.

        Only of single tensors with one label per row, [rows] or [rows, 1].

        Args:
            recording: receives the share.
            arguments: arguments of the loss, nestings of tensors.
        """
        full = f"{FIRST_LABEL}{name}"
        given = [found for argument in arguments if (found := list(leaves(argument)))][:2]
        if not recording.due.ask(full) or [len(found) for found in given] != [1, 1]:
            return
        labels = given[1][0][1]
        if type(labels) is not Tensor or not labels.ndim or not 0 < labels.numel() == len(labels):
            return
        with torch.no_grad(), WithoutModes():
            first = recording.kept.setdefault(full, labels[:1].reshape(()).clone())
            equal = (labels == first).sum() / len(labels)
            self._copier.keep_scalar(recording, full, equal, recording.weight(len(labels)))

    def _keep_due(
        self, recording: Recording, kind: str, name: str, found: list[tuple[str, Tensor]]
    ) -> None:
        for place, tensor in found:
            full = f"{kind}/{name}{place}"
            if ask := recording.due.ask(full):
                if tensor.ndim:
                    recording.saw_rows(len(tensor))
                self._keep(recording, full, tensor, ask)


def labels_pairs(given: list[list[Tensor]]) -> bool:
    """Return whether the third argument of a loss of two outputs labels pairs of their rows.

    Args:
        given: tensors of each argument that has any.
    """
    if [len(found) for found in given[:3]] != [1, 1, 1]:
        return False
    (outputs,), (other,), (labels,) = given[:3]
    rows = outputs.ndim > 0 and labels.ndim > 0 and labels.numel() == len(labels) == len(outputs)
    return rows and other.requires_grad and not labels.requires_grad


def comparison_due(recording: Recording) -> bool:
    """Return whether predictions or labels are due in a step or evaluation."""
    return recording.due.reaches("predictions") or recording.due.reaches("labels")


def batch_size(value: Any) -> int | None:
    """Return the first dimension of the first tensor in a nesting that has one, or None."""
    first = value
    while type(first) is tuple and first:
        first = first[0]
    # Usually found so; looking through a nesting would take twenty times as long. Methods instead
    # of attributes would be operations to a mode of the user's.
    if type(first) is Tensor and first.ndim:
        return first.shape[0]
    return next((tensor.shape[0] for _, tensor in leaves(value) if tensor.ndim), None)


def is_loss(value: Any) -> bool:
    """Return whether a value is a real scalar with a gradient."""
    return (
        isinstance(value, Tensor)
        and value.numel() == 1
        and value.is_floating_point()
        and value.requires_grad
    )
