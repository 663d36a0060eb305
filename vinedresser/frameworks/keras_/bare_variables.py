"""Variables that are trained without a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras


class BareVariables(keras.Model):  # type: ignore[misc]
    """Holds trained variables that belong to no model, as if they were its own.

    It is never called.

    Args:
        variables: variables of TensorFlow or Keras by name; names contain no dots.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        super().__init__()
        self.built = True
        # Past the tracking of Keras, which ignores variables of TensorFlow.
        self.__dict__["_trainable_variables"] = list(variables.values())
        self.__dict__["named"] = {id(one): name for name, one in variables.items()}

    def is_bias(self, variable: Any) -> bool:
        """Return whether a variable is a bias: a vector beside matrices."""
        return (
            len(variable.shape)
            < 2
            <= max(
                len(trainable_variable.shape) for trainable_variable in self._trainable_variables
            )
        )
