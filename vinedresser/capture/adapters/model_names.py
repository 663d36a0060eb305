"""The names that tell several watched models apart."""

from __future__ import annotations

from vinedresser.errors import ConfigError

__all__ = ["ModelNames"]


class ModelNames:
    """The names of the watched models, which are unique; one model may be unnamed."""

    def __init__(self) -> None:
        self._taken: set[str | None] = set()

    def check(self, name: str | None) -> None:
        """Check that a model can be watched under a name.

        Raises:
            ConfigError: the name is invalid or taken.
        """
        if name is not None and (not isinstance(name, str) or not name or "/" in name):
            raise ConfigError(f"name = {name!r}: must be a word without '/'")
        if name in self._taken:
            raise ConfigError(
                "a model is already watched; give each additional model a unique name=…"
                if name is None
                else f"name = {name!r}: already the name of a watched model"
            )

    def take(self, name: str | None) -> None:
        """Reserve the name of a watched model."""
        self._taken.add(name)
