"""The tree of an expression, checked when it is built.

Python's parser reads a text that contains nothing but placeholders, numbers, operators, commas and
parentheses; whatever it returns beyond the nodes of this file is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from vinedresser.errors import ConfigError
from vinedresser.plain_text import visible
from vinedresser.queries.language.tokens import WORD_OPERATORS, Token, spelled

__all__ = ["MOST_NODES", "Call", "Name", "Node", "Number", "parse_expression", "walk"]

MOST_NODES = 200
# Beyond it, float64 no longer holds every integer.
_LARGEST_INTEGER = 2**53
_LARGEST_POWER = 8

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.And: "and",
    ast.Or: "or",
    ast.Not: "not",
    ast.USub: "-",
}


@dataclass(frozen=True)
class Number:
    """A constant."""

    value: float

    def __str__(self) -> str:
        return repr(self.value) if self.value % 1 else str(int(self.value))


@dataclass(frozen=True)
class Name:
    """The name of an observable or collection, or a glob."""

    text: str

    def __str__(self) -> str:
        return spelled(self.text)


@dataclass(frozen=True)
class Call:
    """A function or an operator with its operands; an operator is written as in Python."""

    function: str
    operands: tuple[Node, ...]

    @property
    def is_operator(self) -> bool:
        """Whether it is an operator rather than a function, which may not exist."""
        return not self.function.isidentifier() or self.function in WORD_OPERATORS

    def __str__(self) -> str:
        if not self.is_operator:
            return f"{self.function}({', '.join(map(str, self.operands))})"
        if len(self.operands) == 1:
            return f"({self.function} {self.operands[0]})"
        return f"({f' {self.function} '.join(map(str, self.operands))})"


Node = Number | Name | Call


def walk(node: Node) -> Iterator[Node]:
    """Yield a tree's nodes, the root first."""
    yield node
    if isinstance(node, Call):
        for operand in node.operands:
            yield from walk(operand)


def parse_expression(tokens: Sequence[Token], text: str) -> Node:
    """Return the tree of an expression.

    Args:
        text: the query, for messages.

    Raises:
        ConfigError: it is empty, is not an expression, or exceeds a limit of the language.
    """
    if not tokens:
        raise ConfigError(f"{visible(text)!r}: there is no expression")
    words = {f"_{place}": token for place, token in enumerate(tokens)}
    source = " ".join(
        token.text if token.kind in ("number", "sign") or token.is_operator else f"_{place}"
        for place, token in enumerate(tokens)
    )
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, MemoryError, RecursionError, ValueError) as error:
        raise ConfigError(
            f"{visible(text)!r} is not an expression{_place(error, tokens)}"
        ) from None
    if sum(1 for _ in ast.walk(tree)) > 4 * MOST_NODES:
        raise ConfigError(f"a query of more than {MOST_NODES} operations and names")
    node = _Builder(words, text).build(tree)
    if sum(1 for _ in walk(node)) > MOST_NODES:
        raise ConfigError(f"a query of more than {MOST_NODES} operations and names")
    return node


def _place(error: BaseException, tokens: Sequence[Token]) -> str:
    if not isinstance(error, SyntaxError) or not error.offset:
        return ""
    # The parser's text has the same tokens, separated by one space each.
    return f": check it near {visible(tokens[min(len(tokens) - 1, _index(error, tokens))].text)!r}"


def _index(error: SyntaxError, tokens: Sequence[Token]) -> int:
    assert error.text is not None
    assert error.offset is not None
    return min(error.text[: error.offset - 1].count(" "), len(tokens) - 1)


class _Builder:
    def __init__(self, words: dict[str, Token], text: str) -> None:
        self._words = words
        self._text = text

    def build(self, node: ast.AST) -> Node:
        found: Node
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                found = self._number(value)
            case ast.Name(id=placeholder):
                found = Name(self._words[placeholder].text)
            case ast.UnaryOp(op=ast.USub() | ast.Not() as operator, operand=operand):
                found = Call(_OPERATORS[type(operator)], (self.build(operand),))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                found = self.build(operand)
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
                if isinstance(operator, ast.Pow):
                    self._check_power(right)
                found = Call(_OPERATORS[type(operator)], (self.build(left), self.build(right)))
            case ast.BoolOp(op=operator, values=values):
                found = Call(_OPERATORS[type(operator)], tuple(map(self.build, values)))
            case ast.Compare(left=left, ops=operators, comparators=others):
                found = self._comparison([left, *others], operators)
            case ast.Call(func=ast.Name(id=placeholder), args=arguments, keywords=[]):
                function = self._function(self._words[placeholder])
                found = Call(function, tuple(map(self.build, arguments)))
            case _:
                self._refuse(f"{type(node).__name__} is not part of the language of queries")
        return found

    def _function(self, token: Token) -> str:
        if token.kind != "word":
            self._refuse(f"{visible(token.text)!r} is a name, not a function: nothing is called")
        return token.text

    def _comparison(self, terms: list[ast.expr], operators: Sequence[ast.cmpop]) -> Node:
        pairs = [
            Call(_OPERATORS[type(operator)], (self.build(left), self.build(right)))
            for left, operator, right in zip(terms, operators, terms[1:], strict=False)
        ]
        return pairs[0] if len(pairs) == 1 else Call("and", tuple(pairs))

    def _number(self, value: float) -> Number:
        if abs(value) > _LARGEST_INTEGER and (isinstance(value, int) or value == float("inf")):
            self._refuse("a number is too large")
        return Number(float(value))

    def _check_power(self, exponent: ast.AST) -> None:
        value = exponent.value if isinstance(exponent, ast.Constant) else None
        if not isinstance(value, int) or not 0 <= value <= _LARGEST_POWER:
            self._refuse(f"an exponent must be an integer from 0 to {_LARGEST_POWER}")

    def _refuse(self, reason: str) -> NoReturn:
        raise ConfigError(f"{visible(self._text)!r}: {reason}")
