"""docs/rules/messages.md shows what the rules say today."""

from __future__ import annotations

import re

from docs.rule_messages import PAGE, outdated, page_of
from tests.explain.reports.pages import finding
from vinedresser.rules.registry import RULES

TEXT = PAGE.read_text(encoding="utf-8")


def test_every_rule_has_a_message_that_it_would_give_today() -> None:
    """`python -m docs.rule_messages` writes the page."""
    assert re.findall(r"(?m)^### `(\w+)`$", TEXT) == [*RULES]
    assert outdated(TEXT) == []


def test_a_message_that_has_been_reworded_is_outdated() -> None:
    new = finding(rule="dying_relu", seen="a", cause="", remedy="half of your units no longer fire")
    assert outdated(page_of([new])) == ["half of your units no longer fire"]
