"""Times of schedules, as Prefect's server computes them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from vinedresser.errors import ConfigError
from vinedresser.infra.services.scheduling import Schedule


def test_the_next_time_is_in_the_time_zone_of_the_schedule() -> None:
    when = Schedule("30 2 29 2 *", "Asia/Kolkata").next_time()
    assert (when.month, when.day, when.hour, when.minute) == (2, 29, 2, 30)
    assert when.astimezone(ZoneInfo("Asia/Kolkata")).hour == 2
    assert when.astimezone(UTC).hour == 21
    assert when > datetime.now(UTC)


def test_a_schedule_that_never_comes_is_refused() -> None:
    with pytest.raises(ConfigError, match="cron '0 0 31 2 \\*': "):
        Schedule("0 0 31 2 *").next_time()
