"""A query: an expression with its grouping, filter, reducer and windows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self, get_args

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.plain_text import visible
from vinedresser.queries.every import Every
from vinedresser.queries.folds.numbers import fold_maker
from vinedresser.queries.language.compiling import compile_expression, constant
from vinedresser.queries.language.syntax import Call, Name, Node, Number, parse_expression, walk
from vinedresser.queries.language.tokens import Token, tokenize

__all__ = ["GROUPINGS", "Grouping", "Query"]

Grouping = Literal["layer", "tensor", "class", "unit", "channel"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
_CLAUSES = ("by", "where", "reduce", "every")


@dataclass(frozen=True)
class Query:
    """A query, parsed and checked; nothing is known yet about the training that it asks.

    Its text is an expression, followed by clauses in any order:
    ``EXPRESSION [by layer] [where CONDITION] [reduce FOLD] [every WINDOW]``.

    Attributes:
        text: the text as given.
        expression: tree of the expression.
        by: what the reducing functions group by, or None.
        where: tree of the condition, or None.
        reduce: fold over the events of a window, such as ``max`` or ``quantile(0.9)``, or None for
            the default of the result's kind.
        every: what closes a window.
    """

    text: str
    expression: Node
    by: Grouping | None
    where: Node | None
    reduce: Call | None
    every: Every

    @classmethod
    def parse(cls, text: str, every: str | None = None) -> Self:
        """Return the query of a text.

        Args:
            text: the query, at most 2,000 characters.
            every: what closes a window (see `Every.parse`) unless the text says so itself. None:
                every step.

        Raises:
            ConfigError: the text is not a query, or exceeds a limit of the language. The message
                names the place, and similar names for an unknown function.
        """
        tokens = tokenize(text)
        clauses = _clauses(tokens, text)
        said = clauses.get("every")
        if said and every is not None:
            raise ConfigError(f"{visible(text)!r} says every itself; leave out every = {every!r}")
        if said:
            if any(token.kind == "name" for token in said):
                raise ConfigError(
                    f"{visible(text)!r}: every takes a window, not the name of a value"
                )
            every = text[said[0].start : said[-1].start + len(said[-1].text)]
        conditions = clauses.get("where")
        expression = parse_expression(clauses["expression"], text)
        where = None if conditions is None else parse_expression(conditions, text)
        # Unknown functions and wrong arguments show when they are compiled.
        for tree in (expression, where):
            if tree is not None:
                compile_expression(tree)
        return cls(
            text,
            expression,
            _grouping(clauses.get("by"), text),
            where,
            _reducer(clauses.get("reduce"), text),
            Every.parse("step" if every is None else every),
        )

    @cached_property
    def normalised(self) -> str:
        """The same text for queries that are the same but for spaces and needless parentheses."""
        parts = [str(self.expression)]
        parts += [f"by {self.by}"] if self.by else []
        parts += [f"where {self.where}"] if self.where else []
        parts += [f"reduce {self.reduce}"] if self.reduce else []
        return " ".join([*parts, f"every {self.every}"])

    @cached_property
    def needs(self) -> frozenset[str]:
        """Names and globs of the observables that it reads.

        A name without a slash is an observable (`loss`) or a collection (`gradients`: all names
        that begin with `gradients/`).
        """
        trees = [self.expression, *([self.where] if self.where else [])]
        found = {node.text for tree in trees for node in walk(tree) if isinstance(node, Name)}
        return frozenset(found | ({"labels"} if self.by == "class" else set()))


def _clauses(tokens: list[Token], text: str) -> dict[str, list[Token]]:
    """Return the tokens of each clause; a clause begins with a keyword after an operand."""
    found: dict[str, list[Token]] = {"expression": []}
    current, depth = "expression", 0
    for token in tokens:
        before = found[current][-1] if found[current] else None
        after_operand = before is not None and (
            before.text == ")" if before.kind == "sign" else not before.is_operator
        )
        if token.kind == "word" and token.text in _CLAUSES and not depth and after_operand:
            current = token.text
            if current in found:
                raise ConfigError(f"{visible(text)!r} says {current} twice")
            found[current] = []
            continue
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "sign" else 0
        found[current].append(token)
    for clause, content in found.items():
        if not content and clause != "expression":
            raise ConfigError(f"{visible(text)!r}: nothing follows {clause!r}")
    return found


def _grouping(tokens: list[Token] | None, text: str) -> Grouping | None:
    if tokens is None:
        return None
    word = " ".join(f"`{token.text}`" if token.kind == "name" else token.text for token in tokens)
    for grouping in GROUPINGS:
        if word == grouping:
            return grouping
    hint = did_you_mean(word, GROUPINGS) or f"; use {', '.join(GROUPINGS)}"
    raise ConfigError(f"{visible(text)!r}: cannot group by {visible(word)!r}{hint}")


def _reducer(tokens: list[Token] | None, text: str) -> Call | None:
    if tokens is None:
        return None
    node = parse_expression(tokens, text)
    if isinstance(node, Name) and tokens[0].kind == "word":
        node = Call(node.text, ())
    usage = "reduce takes a fold such as max or quantile(0.9)"
    if not isinstance(node, Call) or not node.function.isidentifier():
        raise ConfigError(f"{visible(text)!r}: {usage}")
    reduce = Call(
        node.function, tuple(Number(constant(operand, usage)) for operand in node.operands)
    )
    fold_maker(reduce)
    return reduce
