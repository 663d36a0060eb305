"""What pruning does with the models of a framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from vinedresser.pruning.criteria.criterion import Measured, Measurement
from vinedresser.pruning.group import Group
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.prunable import Prunable

__all__ = ["Backend", "Losses"]

Losses = Callable[[Any], Iterable[Any]]
"""Called with the model; yields the loss of one batch after the other, each a scalar tensor.

With TensorFlow, each loss must be computed when the next one is asked for, as a generator does.
"""


class Backend(Protocol):
    """Pruning of the models of one framework."""

    def prunable(self, model: Any, example: Any) -> Prunable[Any]:
        """Return the model with its channels.

        Raises:
            PruningError: the model cannot be pruned; the message says why.
        """

    def removed(self, model: Any, plan: Plan) -> Any:
        """Return a model without a plan's channels; see `Prunable.removed`."""

    def measure(
        self,
        model: Any,
        losses: Losses,
        groups: Iterable[Group],
        measurements: Iterable[Measurement],
    ) -> Measured:
        """Measure what criteria need; the model stays as it is.

        Raises:
            PruningError: there is no batch, a value is not finite, or this is not supported.
        """

    def losses_of(self, model: Any, losses: Losses) -> list[float]:
        """Return the losses of all batches, in evaluation mode; the model stays as it is.

        Raises:
            PruningError: one is not a scalar tensor.
        """

    def forward_timer(self, model: Any, example: Any) -> Callable[[], float]:
        """Return a function that runs a model once, in evaluation mode, on the example.

        Each call returns the seconds from the start until the results are there. The model and the
        random state stay as they are.

        Raises:
            PruningError: the model is not supported; or, by the function, it does not run.
        """

    def write_weights(self, model: Any, path: Path) -> None:
        """Write parameters and buffers to a safetensors file, atomically.

        Raises:
            PruningError: the state of the model has something other than tensors.
            OSError: the file cannot be written.
        """

    def read_weights(self, model: Any, path: Path) -> None:
        """Load parameters and buffers from a safetensors file.

        Raises:
            PruningError: the file is missing or damaged, or its tensors do not fit the model.
        """
