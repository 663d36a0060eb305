"""What a user expects of a training, in one line: `accuracy > 0.9 by epoch 3, else stop`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, NoReturn, Self, cast

from vinedresser.errors import ConfigError
from vinedresser.plain_text import visible
from vinedresser.queries.every import Every
from vinedresser.queries.language.compiling import compile_expression
from vinedresser.queries.language.syntax import Call, Node, Number, parse_expression
from vinedresser.queries.language.tokens import LONGEST_TEXT, tokenize
from vinedresser.queries.query import Query
from vinedresser.store.finding import Severity

__all__ = ["COMPARISONS", "Claim", "Comparison", "Expectation", "Point"]

Claim = Literal["holds", "falls", "rises", "trained", "frozen"]

# Comparisons with the words for a breach.
COMPARISONS = {"<": "not below", "<=": "above", ">": "not above", ">=": "below", "==": "not"}
_LINE = re.compile(
    r"(?P<claim>.+?)"
    r"(?:\s+(?P<when>by|from)\s+(?:(?P<unit>step|epoch)\s+(?P<amount>\d{1,12})|(?P<end>end)))?"
    r"(?:\s*,?\s+else\s+(?P<severity>info|warning|stop))?"
)
_VERB = re.compile(r"(?P<subject>\S+)\s+(?:(?:is|are)\s+)?(?P<verb>falls|rises|trained|frozen)")
_USAGE = (
    "write a comparison such as 'accuracy > 0.9' or '0 <= mean(inputs) <= 1', 'NAME falls', "
    "'NAME rises', 'PARAMETERS frozen' or 'PARAMETERS trained'; then, if need be, 'by' or 'from' "
    "with 'step 100', 'epoch 3' or 'end', and ', else stop' (or info, warning)"
)
_END = "end"


class Point(NamedTuple):
    """A point of a training.

    Attributes:
        unit: "step", "epoch", or "end".
        amount: number of steps or epochs that are over; 0 for the end.
    """

    unit: Literal["step", "epoch", "end"]
    amount: int = 0

    def __str__(self) -> str:
        return self.unit if self.unit == _END else f"{self.unit} {self.amount}"


@dataclass(frozen=True)
class Comparison:
    """Two expressions of the language of queries, compared.

    Attributes:
        left: a query whose value is compared.
        operator: one of `COMPARISONS`.
        right: the query of the value that it is compared with.
    """

    left: Query
    operator: str
    right: Query

    def holds(self, left: float, right: float) -> bool:
        """Return whether it is true of two values; it is not if one is NaN."""
        match self.operator:
            case "<":
                return left < right
            case "<=":
                return left <= right
            case ">":
                return left > right
            case ">=":
                return left >= right
        return left == right


@dataclass(frozen=True)
class Expectation:
    """One line of what is expected.

    Attributes:
        claim: "holds" for comparisons; "falls" or "rises" of a value over the run; "trained" or
            "frozen" of parameters.
        subject: name of the value, or glob of the parameters; "" for comparisons.
        comparisons: all of which have to hold.
        by: point until which it has to become true; None: not of this kind.
        since: point from which it has to be true always; None: not of this kind. Without either, it
            has to be true from the start.
        severity: severity of a breach.
    """

    text: str
    claim: Claim
    subject: str
    comparisons: tuple[Comparison, ...]
    by: Point | None
    since: Point | None
    severity: Severity

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what a line says.

        Raises:
            ConfigError: it is not an expectation; the message says what would be one.
        """
        if not isinstance(text, str) or len(text) > LONGEST_TEXT:
            raise ConfigError(f"an expectation must be a text of at most {LONGEST_TEXT} characters")
        found = _LINE.fullmatch(" ".join(text.split()))
        if found is None:
            _refuse(text, "is empty")
        point = None
        if found["when"]:
            unit = cast("Literal['step', 'epoch', 'end']", found["unit"] or _END)
            point = Point(unit, int(found["amount"] or 0))
            if not (point.amount or point.unit == _END):
                _refuse(text, "steps and epochs are counted from 1")
        by, since = (point, None) if found["when"] == "by" else (None, point)
        verb = _VERB.fullmatch(found["claim"])
        claim = cast("Claim", verb["verb"] if verb else "holds")
        if since and (since.unit == _END or claim in ("falls", "rises", "trained")):
            _refuse(text, f"'from {since}' does not go with it")
        if by and claim == "frozen":
            _refuse(text, f"'by {by}' does not go with it")
        if claim in ("falls", "rises", "trained"):
            by = by or Point("end")
        subject = verb["subject"].strip("`") if verb else ""
        comparisons = () if verb else tuple(_comparisons(found["claim"], text))
        severity = cast("Severity", found["severity"] or "warning")
        return cls(text, claim, subject, comparisons, by, since, severity)


def _comparisons(claim: str, text: str) -> Iterator[Comparison]:
    """Yield the comparisons that a claim joins by "and"."""
    try:
        tree = parse_expression(tokenize(claim), claim)
        compile_expression(tree)
    except ConfigError as error:
        _refuse(text, str(error))
    pending: list[Node] = [tree]
    while pending:
        node = pending.pop(0)
        match node:
            case Call(function="and", operands=operands):
                pending = [*operands, *pending]
            case Call(function=function, operands=(left, right)) if function in COMPARISONS:
                if isinstance(left, Number) and isinstance(right, Number):
                    _refuse(text, "it names no value of the training")
                yield Comparison(_query(left), function, _query(right))
            case _:
                _refuse(text, f"{visible(str(node))} is not a comparison")


def _query(node: Node) -> Query:
    return Query(str(node), node, None, None, None, Every.parse("step"))


def _refuse(text: str, reason: str) -> NoReturn:
    shown = repr(visible(text))
    # The language names what it refuses, which may be the whole line.
    reason = reason.removeprefix(f"{shown}: ")
    raise ConfigError(f"expectation {shown}: {reason}; {_USAGE}") from None
