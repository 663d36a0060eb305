"""Pausing a training between two steps."""

from __future__ import annotations

import math
import time

from vinedresser.errors import ConfigError

__all__ = ["DEFAULT_PAUSE", "Pause", "check_pause"]

DEFAULT_PAUSE = 3600.0
"""Seconds after which a paused training resumes by itself."""

# A day: nobody is still looking.
_LONGEST = 86_400.0


class Pause:
    """A pause of the training, which begins now.

    Args:
        seconds: its maximum length.

    Raises:
        ConfigError: the length is invalid.
    """

    def __init__(self, seconds: float) -> None:
        self._since = time.monotonic()
        self._until = self._since + check_pause(seconds)

    @property
    def over(self) -> bool:
        """Whether the maximum length is reached."""
        return time.monotonic() >= self._until

    @property
    def lasted(self) -> float:
        """Seconds since its beginning."""
        return time.monotonic() - self._since


def check_pause(seconds: float) -> float:
    """Return the maximum length of a pause in seconds.

    Raises:
        ConfigError: it is not a number above 0 and up to a day.
    """
    if not math.isfinite(seconds) or not 0 < seconds <= _LONGEST:
        raise ConfigError(f"a pause of {seconds:g} s: must be above 0 and at most {_LONGEST:.0f} s")
    return seconds
