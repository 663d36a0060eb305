"""Amounts, shares and times as text."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from vinedresser.quantities import parse_amount, parse_time


@pytest.mark.parametrize(
    ("given", "amount"),
    [(3, 3), ("10%", Decimal("0.1")), (" 12.5 % ", Decimal("0.125")), ("0.01%", Decimal("0.0001"))],
)
def test_an_amount_is_a_number_or_an_exact_share(given: int | str, amount: int | Decimal) -> None:
    assert parse_amount(given) == amount


@pytest.mark.parametrize("given", [0, -1, True, 0.5, None, "", "10", "0%", "100%", "-5%", "1e1%"])
def test_anything_else_is_not_an_amount(given: Any) -> None:
    with pytest.raises(ValueError, match=r'above 0 or a share such as "10%", not '):
        parse_amount(given)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("30s", 30), ("1.5 min", 90), ("2m", 120), ("24 h", 86_400), ("7d", 604_800)],
)
def test_a_time_is_in_seconds(given: str, seconds: float) -> None:
    assert parse_time(given) == seconds


@pytest.mark.parametrize(
    "given", ["", "soon", "7", "0 h", "-1 s", "1 y", "1h30m", "\u0661 s", "inf s"]
)
def test_anything_else_is_not_a_time(given: str) -> None:
    with pytest.raises(ValueError, match=r'must be a time such as "90 s"'):
        parse_time(given)
