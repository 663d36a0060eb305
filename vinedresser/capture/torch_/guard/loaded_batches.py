"""The batches that data loaders return to the training."""

from __future__ import annotations

import threading
from typing import Any

from vinedresser.capture.shield import Shield
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop

__all__ = ["LoadedBatches"]


class LoadedBatches(LoopListener):
    """Keeps the latest batch that a data loader returned in this thread.

    Args:
        shield: guards the look at a batch.

    Attributes:
        latest: the batch; None before the first, or after `forget`.
    """

    def __init__(self, shield: Shield) -> None:
        self.latest: Any = None
        self._thread = threading.get_ident()
        self._end = listen_to_loop(self, shield.guard)

    def forget(self) -> None:
        """Release the batch."""
        self.latest = None

    def end(self) -> None:
        """Stop to listen."""
        self.forget()
        self._end()

    def batch_loaded(self, batch: Any) -> None:
        """Keep a batch, unless another thread evaluates beside the training."""
        if threading.get_ident() == self._thread:
            self.latest = batch
