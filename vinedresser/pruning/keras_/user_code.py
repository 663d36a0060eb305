"""Running layers of the user's model, which can raise anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from vinedresser.errors import PruningError


@contextmanager
def user_code(failure: str) -> Iterator[None]:
    """Turn any exception into a `PruningError` of one line.

    Args:
        failure: what failed; the exception's text follows.
    """
    try:
        yield
    except PruningError:
        raise
    except Exception as error:
        # Keras writes some words in bold.
        text = " ".join(re.sub(r"\x1b\[\d*m", "", str(error)).split()) or type(error).__name__
        raise PruningError(f"{failure}: {text}") from error
