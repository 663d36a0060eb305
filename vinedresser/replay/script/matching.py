"""Which modules of a script are the models of a snapshot."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from vinedresser.errors import ConfigError
from vinedresser.frameworks.torch_.names import Names, unwrapped
from vinedresser.replay.recorded import RecordedModel, RecordedStep

__all__ = ["Matching", "trains"]

_Signature = frozenset[tuple[str, Any]]


class Matching:
    """Tells the recorded models apart by the names and shapes of their parameters.

    Raises:
        ConfigError: two of its models have the same ones.
    """

    def __init__(self, step: RecordedStep) -> None:
        self._models = step.models
        self._names: dict[_Signature, str] = {}
        # What was looked at: a module that is called often must not be looked at each time.
        self._others: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        for name, model in step.models.items():
            shapes = frozenset((path, one.shape) for path, one in model.parameters.items())
            twin = self._names.setdefault(shapes, name)
            if twin != name:
                raise ConfigError(
                    f"the models {twin} and {name} have parameters of the same names and shapes, "
                    "so a script does not tell them apart; use --factory"
                )

    def name_of(self, module: nn.Module) -> str | None:
        """Return the name of the recorded model that a module is, if its call may be for an update.

        Args:
            module: a module that is about to be called.
        """
        if module in self._others or not torch.is_grad_enabled():
            return None
        if any(map(is_lazy, module.parameters())):
            return None
        parameters = Names(unwrapped(module)).parameters()
        found = self._names.get(
            frozenset((parameter.path, parameter.value.shape) for parameter in parameters)
        )
        if found is None or not parameters:
            self._others.add(module)
            return None
        return found if trains(module, self._models[found]) else None


def trains(module: nn.Module, recorded: RecordedModel) -> bool:
    """Return whether a call of a model may be one for an update.

    Args:
        recorded: its recorded state.
    """
    if not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
        return False
    return module.training == ("" not in recorded.in_eval)
