"""The values that a Lightning module logs, as metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import nn

from vinedresser.frameworks.torch_.modes import WithoutModes


class _Save(Protocol):
    def __call__(self, metrics: Mapping[str, Any], *, training: bool) -> None: ...


class LoggedValues:
    """Saves values passed to ``self.log``: each one in training, the final one of an evaluation.

    Args:
        save: saves metrics by name, of a train step or of an evaluation.
    """

    def __init__(self, save: _Save) -> None:
        self._save = save
        # Names logged in the open evaluation.
        self._logged: set[str] = set()

    def clear(self) -> None:
        """Forget what was logged: an evaluation begins."""
        self._logged.clear()

    def take(self, name: str, value: Any, *, training: bool) -> None:
        """Handle a logged value.

        Args:
            value: a number, a tensor [] or a metric object.
            training: whether it belongs to a train step, not to an evaluation.
        """
        if not training:
            self._logged.add(name)
            return
        # The last return value of a metric object.
        now = getattr(value, "_forward_cache", None) if isinstance(value, nn.Module) else value
        if now is not None:
            with WithoutModes():
                self._save({name: now}, training=True)

    def evaluated(self, final: Mapping[str, Any]) -> None:
        """Save the final values of the metrics that an evaluation has logged.

        Args:
            final: the trainer's values by name.
        """
        # With several data loaders, Lightning adds which one.
        logged = {
            name: value
            for name, value in final.items()
            if name.partition("/dataloader_idx_")[0] in self._logged
        }
        self._save(logged, training=False)
        self.clear()
