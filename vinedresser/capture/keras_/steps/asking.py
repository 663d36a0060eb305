"""What is asked of a step."""

from __future__ import annotations

from collections.abc import Callable

from vinedresser.capture.config.capture_config import Due
from vinedresser.capture.keras_.steps.collector import Collector, Take

__all__ = ["OF_UPDATES", "Asks", "MakeCollector", "asks_of"]

# Says of a full name whether the tensor is asked for.
Asks = Callable[[str], bool]
# Makes a collector of what is asked, and of what takes it.
MakeCollector = Callable[[Asks, Take], Collector]

# What there is only where a batch updates the weights, by the beginnings of its names.
OF_UPDATES = ("gradients/", "updates/")
# All else is of the first batch.
_OF_EACH_BATCH = ("losses/", *OF_UPDATES)


def asks_of(method: str, due: Due | None, *, later: bool) -> Asks:
    """Return what says whether a tensor of a name is asked for.

    Args:
        method: "train_step", or another, whose losses Keras says itself in the end.
        due: the collections; None: nothing.
        later: it is not the first batch of its step, of which less is taken.
    """

    def asks(name: str) -> bool:
        of_each_batch = name.startswith(_OF_EACH_BATCH)
        if due is None or (method != "train_step" if of_each_batch else later):
            return False
        return bool(due.ask(name))

    return asks
