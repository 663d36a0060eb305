"""Which names of a stored run a query reads, and where stored statistics are enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vinedresser.queries.language.elementwise import OF_MAGNITUDES
from vinedresser.queries.language.statistics import STATISTICS
from vinedresser.queries.language.syntax import Call, Name, Node
from vinedresser.queries.naming import matching
from vinedresser.queries.query import Query

__all__ = ["StoredNeeds", "stored_needs"]

# Groupings of tensors as a whole, for which their statistics are enough.
_WHOLE = (None, "layer", "tensor")


@dataclass(frozen=True)
class StoredNeeds:
    """What a query reads from a stored run.

    Attributes:
        reductions: for each name, collection or glob, the statistics that replace the tensors;
            None if only the tensors themselves will do.
        chooses: names by which the query may choose samples, so that statistics of a batch are not
            enough.
        lazy: a condition may leave events out, so that tensors should be read late.
    """

    reductions: Mapping[str, frozenset[str] | None]
    chooses: frozenset[str]
    lazy: bool

    def of(self, name: str) -> list[str]:
        """Return the names of the query that may stand for a name of the run."""
        return [need for need in self.reductions if matching(need, (name,))]


def stored_needs(query: Query) -> StoredNeeds:
    """Return what a query reads from a stored run."""
    found: dict[str, frozenset[str] | None] = {}
    for tree in (query.expression, query.where):
        if tree is not None:
            _collect(tree, found, whole=query.by in _WHOLE)
    for need in query.needs:
        found.setdefault(need, None)
    chooses = frozenset() if query.where is None else frozenset(_bare(query.where))
    return StoredNeeds(found, chooses, query.where is not None)


def _collect(node: Node, found: dict[str, frozenset[str] | None], *, whole: bool) -> None:
    if isinstance(node, Name):
        found[node.text] = None
    elif isinstance(node, Call):
        reduced = _reduced(node) if whole else None
        if reduced is None:
            for operand in node.operands:
                _collect(operand, found, whole=whole)
            return
        name, words = reduced
        before = found.get(name, frozenset())
        found[name] = None if before is None else before | words


def _reduced(node: Call) -> tuple[str, frozenset[str]] | None:
    """Return a name and the statistics that a call like ``mean(abs(name))`` needs."""
    if node.function not in STATISTICS:
        return None
    words = frozenset(STATISTICS[node.function].needs)
    operand = node.operands[0]
    if isinstance(operand, Call) and operand.function == "abs" and words:
        words = frozenset(OF_MAGNITUDES[word] for word in words)
        operand = operand.operands[0]
    return (operand.text, words) if isinstance(operand, Name) else None


def _bare(node: Node) -> set[str]:
    """Return the names that no statistic reduces."""
    if isinstance(node, Name):
        return {node.text}
    if isinstance(node, Call) and node.function in STATISTICS:
        return set()
    return {name for operand in getattr(node, "operands", ()) for name in _bare(operand)}
