"""Splitting the text of a query into tokens.

Names may contain slashes, dots and globs, so ``outputs/relu`` is one token. A division has spaces
around its slash: ``loss / lr``.
"""

from __future__ import annotations

import keyword
import re
from typing import Literal, NamedTuple

from vinedresser.errors import ConfigError
from vinedresser.plain_text import visible

__all__ = ["LONGEST_TEXT", "WORD_OPERATORS", "Token", "spelled", "tokenize"]

LONGEST_TEXT = 2_000
WORD_OPERATORS = ("and", "or", "not")

# A name of the store: a word, then parts such as `conv1.weight`, `relu*`, `relu#1`, `lstm[0]` or
# `block1.relu()`.
_PART = r"(?:[\w.:#*-]|\[\w*\]|\(\))+"
_TOKEN = re.compile(
    rf"""(?P<space>\s+)
    |`(?P<quoted>[^`]{{1,300}})`
    |(?P<name>[A-Za-z_]\w*(?:/{_PART})+)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<sign>\*\*|//|<=|>=|==|!=|[-+*/%<>(),])""",
    re.VERBOSE | re.ASCII,
)
# The language's own keywords among Python's; the others would be confusing names.
_ALLOWED = (*WORD_OPERATORS, "class")
_LONGEST_NUMBER = 25


class Token(NamedTuple):
    """A token of a query.

    Attributes:
        kind: "name" (of an observable, with a slash or in backquotes, maybe with globs), "word" (a
            name without slashes, a function, or a keyword), "number" or "sign".
        text: the text, without quotes.
        start: position in the query.
    """

    kind: Literal["name", "word", "number", "sign"]
    text: str
    start: int

    @property
    def is_operator(self) -> bool:
        """Whether it is an operator that is a word; in backquotes it would be a name."""
        return self.kind == "word" and self.text in WORD_OPERATORS


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a query.

    Raises:
        ConfigError: it is not a text, too long, or has a character or word that is not allowed.
    """
    if not isinstance(text, str):
        raise ConfigError(f"a query must be a text, not {type(text).__name__}")
    if len(text) > LONGEST_TEXT:
        raise ConfigError(f"a query of {len(text):,} characters: at most {LONGEST_TEXT:,}")
    found: list[Token] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ConfigError(f"{visible(text)!r}: unexpected {text[place]!r} at {place + 1}")
        place = match.end()
        if match.lastgroup != "space":
            found.append(_token(match, text))
    return _joined(found)


def spelled(name: str) -> str:
    """Return a name as a query spells it: in backquotes if it has other characters."""
    match = _TOKEN.fullmatch(name)
    return name if match and match.lastgroup in ("name", "word") else f"`{name}`"


def _token(match: re.Match[str], text: str) -> Token:
    kind, content = match.lastgroup, match[match.lastgroup or 0]
    if kind == "word":
        if content.startswith("__") or (keyword.iskeyword(content) and content not in _ALLOWED):
            raise ConfigError(f"{visible(text)!r}: {content!r} is not part of the language")
        return Token("word", content, match.start())
    if kind == "quoted":
        _check_quoted(content, text)
    if kind == "number":
        if len(content) > _LONGEST_NUMBER:
            raise ConfigError(f"a number of {len(content):,} digits: at most {_LONGEST_NUMBER}")
        return Token("number", content, match.start())
    return Token("sign" if kind == "sign" else "name", content, match.start())


def _check_quoted(name: str, text: str) -> None:
    """Check that a name in backquotes can be that of an observable."""
    first, slash, rest = name.partition("/")
    complete = bool(rest) if slash else not keyword.iskeyword(first)
    if first.startswith("__") or not first.isidentifier() or not complete or visible(name) != name:
        raise ConfigError(
            f"{visible(text)!r}: {visible(name)!r} is no name of a value: backquotes take a word, "
            "or a collection, a slash and visible characters, such as `metrics/top 5`"
        )


def _joined(tokens: list[Token]) -> list[Token]:
    """Return the tokens with each ``loss per sample`` as one name, ``loss_per_sample``."""
    found: list[Token] = []
    for token in tokens:
        found.append(token)
        last = found[-3:]
        words = len(last) == 3 and all(one.kind == "word" for one in last)
        if words and [one.text for one in last[1:]] == ["per", "sample"]:
            found[-3:] = [Token("word", f"{last[0].text}_per_sample", last[0].start)]
    return found
