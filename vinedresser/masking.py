"""Masking of what looks like a secret, before it is stored or sent (standard library only).

Records, MLflow and reports are shared; a value in them cannot be taken back. A secret is recognized
by its name, by its shape, or as the password in a URL. Hyperparameters with similar names, such as
``max_tokens = 512`` and ``pad_token = "<pad>"``, are not secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

__all__ = [
    "MASK",
    "masked_arguments",
    "masked_code",
    "masked_names",
    "masked_text",
    "masked_value",
]

MASK = "***"

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = frozenset(
    {"apikey", "credential", "credentials", "passphrase", "passwd", "password", "secret", "secrets"}
)
# Words before "key".
_KEYS = frozenset({"access", "api", "auth", "private", "secret"})
# Words beside "token" in the names of hyperparameters of language models.
_TOKENS = re.compile(
    "bos|class|cls|end|eos|image|level|mask|max|min|new|next|num|pad|sep|special|start|stop"
    "|tokenizer|type|unk|word"
)
# Shorter values of a token are words, such as "char".
_LEAST_TOKEN = 8

# Where a word begins: also behind the escape code of a terminal, which may end in a letter, itself
# or as Python, JSON or a shell write it.
_BEGIN = (
    r"(?:\b|(?P<escape>(?:\x9b|(?:\x1b|\\x1b|\\u001[bB]|\\033|\\e)\[)[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]))"
)
_SHAPES = re.compile(
    _BEGIN
    + r"(?:gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{22,}|glpat-[\w-]{20,}|hf_[A-Za-z0-9]{30,}"
    r"|sk-(?:[a-z]+\d*-)*\w{20,}|xox[abeprs]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{35}"
    r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
)
_URL = re.compile(_BEGIN + r"(?P<scheme>[A-Za-z][\w+.-]*://)[^/\s:@]*:[^/\s@]+@")
_QUERY = re.compile(
    r"(?P<name>[?&][\w.-]*(?:key|password|secret|signature|token)=)[^&\s#]+", re.IGNORECASE
)
# A value that code or a file of settings gives to a name.
_ASSIGNED = re.compile(
    r"(?P<name>[\w.-]+)(?P<sign>[\"']?\]?\s*[:=]\s*)(?P<quote>[\"']?)(?P<value>[^\s\"',;]+)"
)


def masked_text(text: str) -> str:
    """Return a text in which passwords in URLs and tokens of known shapes are masked."""
    text = _URL.sub(rf"\g<escape>\g<scheme>{MASK}@", text)
    return _SHAPES.sub(rf"\g<escape>{MASK}", _QUERY.sub(rf"\g<name>{MASK}", text))


def masked_code(text: str) -> str:
    """Return code, settings or a diff of them in which what looks like a secret is masked."""

    def masked(found: re.Match[str]) -> str:
        if not _is_secret(found["name"], found["value"]):
            return found[0]
        return f"{found['name']}{found['sign']}{found['quote']}{MASK}"

    return masked_text(_ASSIGNED.sub(masked, text))


def masked_value(name: str, value: Any) -> Any:
    """Return a value of JSON types, with what looks like a secret masked.

    Args:
        name: name of the parameter or variable.
        value: its value; the values of a nested mapping are judged by their own names, too.
    """
    if _is_secret(name, value):
        return MASK
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, Mapping):
        return {key: masked_value(str(key), one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [masked_value(name, one) for one in value]
    return value


def masked_names(values: Mapping[str, Any]) -> list[str]:
    """Return the names of the values in which something looks like a secret."""
    return [name for name, value in values.items() if not _equal(masked_value(name, value), value)]


def masked_arguments(arguments: Sequence[str]) -> list[str]:
    """Return arguments of a program, with what looks like a secret masked.

    The name of a value is that of its option: ``--api-key VALUE``, ``--api-key=VALUE``.
    """
    masked: list[str] = []
    option = ""
    for argument in arguments:
        name, separator, value = argument.partition("=")
        if separator and _is_secret(name, value):
            masked.append(f"{name}={MASK}")
        elif option and not argument.startswith("-"):
            masked.append(masked_value(option, argument))
        else:
            masked.append(masked_text(argument))
        option = argument if argument.startswith("-") and not separator else ""
    return masked


def _is_secret(name: str, value: object) -> bool:
    """Return whether a value is a secret, judged by its name."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value in ("", MASK):
        return False
    words = [word.lower() for word in _WORDS.findall(name)]
    if _SECRET_WORDS.intersection(words):
        return True
    if any(one in _KEYS and following == "key" for one, following in pairwise(words)):
        return True
    is_token = "token" in words and not any(map(_TOKENS.fullmatch, words))
    return is_token and isinstance(value, str) and len(value.strip('"')) >= _LEAST_TOKEN


def _equal(masked: Any, value: Any) -> bool:
    """Return whether masking left a value as it was; a tuple has become a list."""
    return bool(masked == (list(value) if isinstance(value, tuple) else value))
