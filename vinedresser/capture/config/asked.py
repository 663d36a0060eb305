"""What standing queries read in a step: the names of a query as collections of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vinedresser.errors import ConfigError
from vinedresser.plain_text import visible
from vinedresser.store.collections.collection import KINDS, Collection

__all__ = ["Asked", "check_kinds"]

# Values that steps offer without copying tensors.
_NUMBERS = ("losses", "metrics", "timing")
_GRADIENTS = "gradients"
# Names that do not begin with a kind, with the regex of the tensors behind them.
_STANDARD = {
    "loss": "^losses/",
    "lr": r"^optimizer_state/(.*\.)?lr$",
    "step_seconds": "^timing/step$",
    "epoch": "^(metrics|saved)/epoch$",
}


class Asked:
    """The tensors and numbers that standing queries read at a step.

    Compared by identity: a set of queries has one object.

    Args:
        needs: names, collections and globs of the queries (`Query.needs`).
        roots: paths of the watched models, whose inputs are those of the batch.

    Attributes:
        collections: collections of these tensors.
        plain: those of them that a plain step holds: only numbers or gradients.
        gradients: queries read gradients.
    """

    def __init__(self, needs: Iterable[str], roots: Iterable[str] = ()) -> None:
        found: list[Collection] = []
        self.plain: list[Collection] = []
        self.gradients = False
        for number, need in enumerate(sorted(needs)):
            name, kind = f"asked-{number}", need.partition("/")[0]
            if need == "inputs":
                batch = Collection(name, modules=(*roots, "batch"), kinds=("inputs",))
                found.append(batch)
            elif (regex := _regex(need)) is not None:
                found.append(Collection(name, regex=regex))
                self.gradients |= kind == _GRADIENTS
                numbers = kind in _NUMBERS or need in ("loss", "step_seconds", "epoch")
                if numbers or kind == _GRADIENTS:
                    self.plain.append(found[-1])
        self.collections = tuple(found)

    def holds(self, name: str) -> bool:
        """Return whether a query reads the tensor or number with a full name."""
        return any(collection.holds(name) for collection in self.collections)


def check_kinds(needs: Iterable[str]) -> None:
    """Check that the globs of a query say which kind of tensors they mean.

    Raises:
        ConfigError: one does not; hooks for everything would slow the training down.
    """
    for need in needs:
        if "*" in need and need.partition("/")[0] not in KINDS:
            raise ConfigError(
                f"{visible(need)}: a pattern must begin with the kind of the tensors, such as "
                "gradients/*"
            )


def _regex(need: str) -> str | None:
    """Return the regex of the tensors that a name stands for; None: no tensors or numbers."""
    if need in _STANDARD:
        return _STANDARD[need]
    kind, slash, path = need.partition("/")
    if not slash:
        # `step`, and values of the user's events are offered anyway.
        return f"^{kind}/" if kind in KINDS else None
    if "*" in path:
        return f"^{re.escape(kind)}/" + ".*".join(map(re.escape, path.split("*"))) + "$"
    return rf"^{re.escape(kind)}/{re.escape(path)}($|[/.\[])"
