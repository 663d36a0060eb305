"""Computing in float64 with Keras."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import keras
from keras.src.backend.common import dtypes

from vinedresser.errors import PruningError

_LOCK = threading.RLock()


@contextmanager
def double_precision() -> Iterator[None]:
    """Let operations on float64 compute in float64, in all threads; one thread at a time.

    On other backends than TensorFlow, Keras computes many of them in float32. It has no setting for
    this, only a table of its own, which not every version may have.

    Raises:
        PruningError: this version of Keras cannot be made to.
    """
    with _LOCK:
        table = getattr(dtypes, "BIT64_TO_BIT32_DTYPE", {})
        usual = table.get("float64")
        if usual is not None:
            table["float64"] = "float64"
        try:
            found = keras.backend.result_type("float64", "float64")
            if found != "float64":
                raise PruningError(
                    f"Keras {keras.__version__} computes in {found} what is given in float64, so "
                    "pruning cannot be proved; use Keras 3.15, or the TensorFlow backend"
                )
            yield
        finally:
            if usual is not None:
                table["float64"] = usual
