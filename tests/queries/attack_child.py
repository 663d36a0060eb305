"""Evaluates all attacks in a process that any attempt to run code or open a file ends.

It prints a JSON object: for each attack what became of it, why, the seconds of processor time of
its first and second evaluation, and the bytes that they allocated.
"""

from __future__ import annotations

import json
import re
import sys
import time
import tracemalloc
from typing import Any

import numpy as np

from tests.queries.attacks import ATTACKS
from tests.queries.offering import event
from vinedresser.errors import ConfigError
from vinedresser.queries.answer import Answer
from vinedresser.queries.query import Query
from vinedresser.queries.standing import StandingQuery

# The only text that Python's parser ever sees: placeholders, numbers, operators, parentheses.
_HARMLESS = re.compile(rb"(?:_\d+|[\d.]+(?:[eE][+-]?\d+)?|and|or|not|[-+*/%<>=!(), ])*")
_WATCHED = ("exec", "import", "open", "os.", "subprocess.", "socket.", "ctypes.", "pickle.",
            "shutil.", "code.", "builtins.breakpoint", "builtins.input")  # fmt: skip
_watching = False


def _audit(name: str, arguments: tuple[Any, ...]) -> None:
    if not _watching:
        return
    if name == "compile":
        source = arguments[0]
        text = source.encode("utf-8", "replace") if isinstance(source, str) else bytes(source)
        if not _HARMLESS.fullmatch(text.strip()):
            raise SystemExit(f"compiled {text[:100]!r}")
    elif name.startswith(_WATCHED):
        raise SystemExit(f"{name} {arguments[:2]!r}")


def offered() -> dict[str, Any]:
    """Return values of all sizes."""
    random = np.random.default_rng(0)
    many = {f"many/{place}.weight": np.ones(4) for place in range(1_500)}
    big = random.normal(size=(1_000, 3_000)).astype(np.float32)
    return {
        "loss": 1.0,
        "lr": 0.1,
        "gradients/a": np.ones((3, 4)),
        "gradients/b": np.ones(5),
        "outputs/relu": np.ones((8, 5)),
        "big": big,
        "half": np.ones((40, 1_000_000), np.float16),
        "ints": np.ones((40, 1_000_000), np.int16),
        "column": np.ones((20_000, 1)),
        "row": np.ones((1, 20_000)),
        "square": np.ones((2_000, 2_000), np.float32),
        "samples": random.normal(size=400_000),
        "labels": np.arange(400_000) % 900,
        "huge": np.full(2_000_000, 10**6),
        **many,
    }


def outcome(
    text: str, values: dict[str, Any], *, memory: bool
) -> tuple[str, str, list[float], int]:
    """Return what became of an attack, the reason, the seconds of each evaluation and the bytes."""
    try:
        query = StandingQuery(Query.parse(text), rate=None)
    except ConfigError as error:
        return "refused", str(error), [], 0
    one = event(values)
    answers: list[Answer] = []
    spent: list[float] = []
    if memory:
        tracemalloc.start()
    for step in range(2):
        start = time.thread_time()
        answers += query.observe(event(values, step))
        spent.append(time.thread_time() - start)
    taken = 0
    if memory:
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    if query.ended is not None:
        return "ended", query.ended, spent, taken
    unknown = query.explain(one)
    if unknown is not None:
        return "unknown", str(unknown.error), spent, taken
    return ("answered" if answers else "open"), "", spent, taken


def main() -> None:
    """Print the outcomes."""
    global _watching  # noqa: PLW0603 (the hook has no other way)
    sys.addaudithook(_audit)
    values = offered()
    for warm in ("norm(big)", "quantile(samples, 0.5)", "top(labels, 3)", "histogram(samples)"):
        outcome(warm, values, memory=True)
    found = {}
    for text in ATTACKS:
        _watching = True
        try:
            kind, why, seconds, _ = outcome(text, values, memory=False)
            *_, octets = outcome(text, values, memory=True)
        finally:
            _watching = False
        found[text] = (kind, why, seconds, octets)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
