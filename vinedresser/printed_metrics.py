"""Metrics in the lines that a program prints, found by regular expressions.

The expressions are those of RE2 (https://github.com/google/re2/wiki/Syntax): their time grows with
the length of a line only, so that none can halt the training in whose process they are searched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

__all__ = ["LONGEST", "MetricSearch", "check_metrics"]

LONGEST = 4096
"""Characters of a line that are searched."""


def check_metrics(metrics: Mapping[str, str]) -> None:
    """Check regular expressions of metrics by their names.

    Raises:
        ValueError: a name is empty or a regular expression invalid or without a group; the message
            begins with the name.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    for name, regex in metrics.items():
        if not name.strip("/ ") or not name.isprintable():
            raise ValueError(f"{name!r}: the name of a metric is a word, such as accuracy")
        try:
            groups = re2.compile(regex, options).groups
        except re2.error as error:
            reason = error.args[0].decode(errors="replace")
            raise ValueError(f"{name}: invalid regex {regex!r}: {reason} (syntax of RE2)") from None
        if not groups:
            raise ValueError(
                f"{name}: regex {regex!r} has no group for the number, as in 'acc: ([0-9.]+)'"
            )


class MetricSearch:
    """Searches lines for metrics.

    Args:
        metrics: a valid regular expression for each name, whose first group is the number.
        report: called once for each metric with a sentence about a text that is no number.

    Raises:
        ImportError: the package google-re2 is not installed.
    """

    def __init__(self, metrics: Mapping[str, str], report: Callable[[str], None]) -> None:
        import re2

        self._patterns = {name: re2.compile(regex) for name, regex in metrics.items()}
        self._report = report
        self._refused: set[str] = set()

    def values(self, line: str) -> dict[str, float]:
        """Return the numbers in a line by the names of their metrics."""
        found = {}
        for name, pattern in self._patterns.items():
            match = pattern.search(line[:LONGEST])
            # A group that is optional may have no text.
            text = match.group(1) if match is not None else None
            if text is None:
                continue
            with suppress(ValueError):
                found[name] = float(text)
                continue
            if name not in self._refused:
                self._refused.add(name)
                self._report(f"metric {name}: the regex finds {text[:80]!r}, which is no number")
        return found
