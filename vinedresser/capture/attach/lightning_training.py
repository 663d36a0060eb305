"""The values that modules of Lightning log in trainings that were found by their optimizers."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from vinedresser.capture.lightning_.logged_values import LoggedValues
from vinedresser.capture.run.attachment import ATTACHMENT, Attachment
from vinedresser.frameworks.methods import listen
from vinedresser.frameworks.torch_.passing import passed_on

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_CONNECTOR = "trainer.connectors.logger_connector.logger_connector"

_attached: set[str] = set()


class _LoggedInTrainings:
    """Saves what modules log as metrics of the training that is captured, if any.

    Args:
        attachment: has the hook of that training.
    """

    def __init__(self, attachment: Attachment, package: Any) -> None:
        self._attachment = attachment
        self._module = package.LightningModule
        connector = import_module(f"{package.__name__}.{_CONNECTOR}")
        self._connector = connector._LoggerConnector
        self._values = LoggedValues(attachment.logged)
        self._ends: list[Callable[[], None]] = []

    def start(self) -> None:
        """See `Finder.start`."""
        guard, original = self._attachment.shield.guard, self._module.log
        logged = guard("a logged value", self._logged)

        @functools.wraps(original)
        def log(module: Any, /, *args: Any, **kwargs: Any) -> Any:
            result = passed_on(original, (module, *args), kwargs)
            logged(module, **dict(zip(("name", "value"), args, strict=False)), **kwargs)
            return result

        def restore() -> None:
            if self._module.log is log:
                self._module.log = original

        self._module.log = log
        ended = guard("the end of an evaluation", self._evaluated)
        self._ends = [restore, listen(self._connector, "log_eval_end_metrics", ended)]

    def end(self) -> None:
        """See `Finder.end`."""
        while self._ends:
            self._ends.pop()()

    def _logged(self, module: Any, name: str, value: Any, **_: Any) -> None:
        trainer = module._trainer
        if trainer is not None and not trainer.sanity_checking:
            self._values.take(name, value, training=trainer.training)

    def _evaluated(self, connector: Any) -> None:
        """Save the final values of an evaluation, which ends when training resumes."""
        if not connector.trainer.sanity_checking:
            self._values.evaluated(connector.trainer.callback_metrics)


def attach() -> None:
    """Start looking for logged values, in each of the two packages once."""
    for name in _PACKAGES:
        if name in sys.modules and name not in _attached:
            _attached.add(name)
            ATTACHMENT.search(_LoggedInTrainings(ATTACHMENT, sys.modules[name]))
