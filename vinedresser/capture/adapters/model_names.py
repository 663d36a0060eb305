"""The names under which several models are watched."""

from __future__ import annotations

from vinedresser.errors import ConfigError

__all__ = ["ModelNames"]


class ModelNames:
    """Tells the watched models apart: all have names of their own, but one may go without."""

    def __init__(self) -> None:
        self._taken: set[str | None] = set()

    def check(self, name: str | None) -> None:
        """See that a model can be watched under a name.

        Raises:
            ConfigError: it cannot; the message says why.
        """
        if name is not None and (not isinstance(name, str) or not name or "/" in name):
            raise ConfigError(f"name = {name!r}: must be a word without '/'")
        if name in self._taken:
            raise ConfigError(
                "a model is watched already; give each further one a name of its own, name=…"
                if name is None
                else f"name = {name!r}: a watched model has that name"
            )

    def take(self, name: str | None) -> None:
        """Note that a model is watched under a name."""
        self._taken.add(name)
