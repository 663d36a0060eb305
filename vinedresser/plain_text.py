"""Text from runs made harmless: control characters become visible."""

from __future__ import annotations

import unicodedata

# Control characters, which move a terminal's cursor or hide text; format characters, which reverse
# or join it; lone surrogates, which cannot be encoded; and line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Joiners of letters and emoji: words of some scripts need them.
_JOINERS = "\u200c\u200d"


def visible(text: str, *, keep: str = "") -> str:
    r"""Return text with its control characters as escapes, such as ``\x1b`` or ``\u202e``.

    Args:
        text: any text, such as the name of a tensor or the message of an exception.
        keep: characters to keep, such as line feeds.
    """
    if text.isprintable():
        return text
    kept = _JOINERS + keep
    return "".join(
        repr(letter)[1:-1]
        if unicodedata.category(letter) in _HIDDEN and letter not in kept
        else letter
        for letter in text
    )
