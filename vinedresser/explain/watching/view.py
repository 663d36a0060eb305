"""Contents of a page at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256


@dataclass(frozen=True)
class View:
    """Contents of a page at one moment.

    Attributes:
        title: title of the window.
        state: state of the run, or "store".
        html: the contents: a header and sections, each with an id; everything from runs is escaped.
        over: nothing more will come.
        steps: number of optimizer steps done; 0 for a store.
    """

    title: str
    state: str
    html: str
    over: bool = False
    steps: int = 0

    @cached_property
    def version(self) -> str:
        """A word that differs between views with different contents."""
        return sha256(f"{self.title}\0{self.html}".encode(errors="replace")).hexdigest()[:24]
