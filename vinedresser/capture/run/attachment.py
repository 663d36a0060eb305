"""What of this process is captured without its script's doing."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import Protocol, TypeVar

from vinedresser.capture.shield import Shield
from vinedresser.errors import VinedresserError

__all__ = ["ATTACHMENT", "Attachment", "Attached", "Finder"]


class Attached(Protocol):
    """The hook of a training that was found."""

    def let_go(self) -> None:
        """Close, and keep nothing of the models."""


H = TypeVar("H", bound=Attached)


class Finder(Protocol):
    """Finds trainings of one framework."""

    def start(self) -> None:
        """Look for trainings, by callbacks that the attachment's shield of now guards."""

    def end(self) -> None:
        """Leave the framework as it was found, and forget the training."""


class Attachment:
    """Opens a hook for each training that is found.

    A forked child, whose parent goes on with its own, begins anew. Of it all nothing is left when
    the script makes a hook by itself.

    Attributes:
        shield: around all that the trainings call.
    """

    def __init__(self) -> None:
        self.shield = Shield()
        self._retired = False
        self._finders: list[Finder] = []
        self._hooks: list[Attached] = []
        os.register_at_fork(after_in_child=self._forked)

    def search(self, finder: Finder) -> None:
        """Have trainings looked for from now on."""
        if not self._retired:
            self._finders.append(finder)
            finder.start()

    def begin(self, make: Callable[[], H], before: Attached | None) -> H:
        """Return the hook for a training that has just been found.

        Args:
            make: returns the hook.
            before: that of the training of the same framework that has ended with this; closed.

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
            # Not to be tried again at every step.
            self.retire()
            raise
        # Before the hook closes by itself: a model that is ours alone by then must be gone before
        # the interpreter takes its framework apart.
        atexit.unregister(self.retire)
        atexit.register(self.retire)
        self._hooks.append(hook)
        return hook

    def retire(self) -> None:
        """Let go of all trainings, and look for no further one."""
        self._retired = True
        finders, self._finders = self._finders, []
        for finder in finders:
            finder.end()
        while self._hooks:
            self._hooks.pop().let_go()

    def _forked(self) -> None:
        """Begin anew: what the parent has set is dead here, by its shields."""
        self.shield = Shield()
        self._hooks = []
        for finder in self._finders:
            finder.end()
            finder.start()


ATTACHMENT = Attachment()
