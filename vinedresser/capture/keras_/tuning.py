"""Changes of the learning rate of a Keras training between two steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from vinedresser.capture.adapters.adapter import Change, Changed
from vinedresser.errors import ConfigError


class KerasLearningRate:
    """The learning rate of optimizers, which compiled functions read at every step.

    Args:
        optimizers: the optimizers, all changed together.

    Raises:
        ConfigError: One is not an optimizer or has a learning rate schedule.
    """

    def __init__(self, optimizers: Iterable[Any]) -> None:
        self._optimizers = [
            getattr(optimizer, "inner_optimizer", optimizer) for optimizer in optimizers
        ]
        for optimizer in self._optimizers:
            if not isinstance(optimizer, keras.optimizers.Optimizer):
                raise ConfigError(
                    f"tunable('lr', …): {optimizer!r} is not a keras.optimizers.Optimizer"
                )
            if not hasattr(optimizer.learning_rate, "assign"):
                raise ConfigError(
                    f"tunable('lr', …): {type(optimizer).__name__} has a learning rate schedule; "
                    "use a number and change it in a callback"
                )

    def change(self, change: Change) -> Changed:
        """See `Tunable.change`."""
        old = [
            float(keras.ops.convert_to_numpy(optimizer.learning_rate))
            for optimizer in self._optimizers
        ]
        new = [change(rate) for rate in old]
        for one, rate in zip(self._optimizers, new, strict=True):
            one.learning_rate.assign(rate)
        return Changed(old, new)
