"""The border to code that anyone may have written: rules, signals, files of custom rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from vinedresser.errors import CorruptData, KeyMissing, StoreError

T = TypeVar("T")


def shielded(call: Callable[[], T], on_error: Callable[[Exception], T]) -> T:
    """Return the result of a call, or that of ``on_error`` if it raises an exception.

    This is the only place in the rules that catches every exception: a rule that fails must stop
    neither the other rules nor the judge. KeyboardInterrupt and SystemExit pass, and so do failures
    of the storage, after which a judge starts again: they are no fault of the rule.

    Args:
        call: code of a rule or signal.
        on_error: reports or replaces the exception, or raises another one.

    Raises:
        StoreError: the storage failed.
    """
    try:
        return call()
    except (CorruptData, KeyMissing) as error:
        return on_error(error)
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 (see above)
        return on_error(error)
