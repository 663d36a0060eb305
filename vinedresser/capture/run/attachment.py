"""The trainings of this process that are captured without a hook in the script."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from vinedresser.capture.shield import Shield
from vinedresser.errors import VinedresserError

__all__ = ["ATTACHMENT", "Attachment", "Attached", "Finder"]


class Attached(Protocol):
    """The hook of a training that was found."""

    def let_go(self) -> None:
        """Close the hook and release the models."""

    def logged(self, metrics: Mapping[str, Any], *, training: bool) -> None:
        """Save metrics that the training logs.

        Args:
            metrics: numbers by name.
            training: whether they belong to the train step, not to an evaluation.
        """

    def after_each_step(self, call: Callable[[int], object]) -> None:
        """Call a function with the number of finished steps after each train step.

        It may raise `TrainingStopped`, and nothing else.
        """


H = TypeVar("H", bound=Attached)


class Finder(Protocol):
    """Finds trainings of one framework."""

    def start(self) -> None:
        """Start to look for trainings, with callbacks guarded by the attachment's shield."""

    def end(self) -> None:
        """Remove the callbacks and release the training."""


class Attachment:
    """Opens a hook for each training that is found, until the script creates its own hook.

    A forked child starts anew, while the parent keeps its hooks.

    Attributes:
        shield: guards all callbacks.
        opened: called with each hook that was opened.
    """

    def __init__(self) -> None:
        self.shield = Shield()
        self.opened: list[Callable[[Attached], object]] = []
        self._retired = False
        self._finders: list[Finder] = []
        self._hooks: list[Attached] = []
        os.register_at_fork(after_in_child=self._forked)

    def search(self, finder: Finder) -> None:
        """Start a finder."""
        if not self._retired:
            self._finders.append(finder)
            finder.start()

    def begin(self, make: Callable[[], H], before: Attached | None) -> H:
        """Return the hook for a training that was just found.

        Args:
            make: create the hook.
            before: hook of the framework's previous training, which is closed.

        Raises:
            SecondWriter: there were too many trainings.
            VinedresserError: the run cannot be opened.
        """
        if before is not None:
            before.let_go()
            self._hooks.remove(before)
        try:
            hook = make()
        except VinedresserError:
            # Do not try again at every step.
            self.retire()
            raise
        # Runs before the hook's own exit handler: a model that only the hook keeps alive must be
        # freed before the interpreter unloads its framework.
        atexit.unregister(self.retire)
        atexit.register(self.retire)
        self._hooks.append(hook)
        for one in self.opened:
            one(hook)
        return hook

    def logged(self, metrics: Mapping[str, Any], *, training: bool) -> None:
        """Save metrics that the training logs, if it was found; see `Attached.logged`."""
        if self._hooks:
            self._hooks[-1].logged(metrics, training=training)

    def retire(self) -> None:
        """Release all trainings and stop looking for others."""
        self._retired = True
        finders, self._finders = self._finders, []
        for finder in finders:
            finder.end()
        while self._hooks:
            self._hooks.pop().let_go()

    def _forked(self) -> None:
        """Start anew: the shields disable the parent's callbacks in the child."""
        self.shield = Shield()
        self._hooks = []
        for finder in self._finders:
            finder.end()
            finder.start()


ATTACHMENT = Attachment()
