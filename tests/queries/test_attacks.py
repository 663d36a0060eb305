"""No expression runs code, reaches an object, or costs more than allowed."""

from __future__ import annotations

import json
import subprocess
import sys
from operator import gt
from typing import Any

import pytest

from tests.paths import ROOT
from tests.queries.attacks import ATTACKS, CALLS, CODE, LOOKS, OBJECTS
from vinedresser.errors import ConfigError
from vinedresser.queries.language.budget import OF_A_TRAINING
from vinedresser.queries.query import Query

# What the answer itself takes, which is at most 64 KiB of JSON, and objects of the interpreter.
_SLACK_BYTES = 8 << 20
# What follows the last look at the clock.
_SLACK = 1.2


def test_there_are_many_different_attacks() -> None:
    assert len(set(ATTACKS)) == len(ATTACKS) >= 150


@pytest.mark.parametrize("text", [*CALLS, *OBJECTS, *CODE, *LOOKS])
def test_code_is_refused_or_is_a_name_that_nothing_has(text: str) -> None:
    try:
        needs = Query.parse(text).needs
    except ConfigError as error:
        says = str(error)
    else:
        says = "a name"
        assert needs
        assert not needs & {"loss", "gradients", "outputs/relu"}
    # One line, without control characters.
    assert says.isprintable()


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.queries.attack_child"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.thorough
def test_nothing_is_executed(outcomes: dict[str, Any]) -> None:
    # The process would have ended.
    assert len(outcomes) == len(ATTACKS)


@pytest.mark.thorough
def test_each_costs_little_or_is_disabled_with_a_reason(outcomes: dict[str, Any]) -> None:
    most = OF_A_TRAINING
    costly = {
        text[:60]: (kind, why, seconds, octets / 2**20)
        for text, (kind, why, seconds, octets) in outcomes.items()
        if octets > most.octets + _SLACK_BYTES
        or (
            not (kind == "ended" and why)
            and any(map(gt, seconds, (most.first * _SLACK, most.seconds * _SLACK)))
        )
    }
    assert costly == {}


@pytest.mark.thorough
def test_what_is_refused_has_a_reason(outcomes: dict[str, Any]) -> None:
    assert all(why for kind, why, *_ in outcomes.values() if kind not in ("answered", "open"))
    # The corpus reaches the evaluation, too.
    kinds = [kind for kind, *_ in outcomes.values()]
    assert min(kinds.count(kind) for kind in ("refused", "ended", "answered", "unknown")) >= 5
