"""Whether a person wants all to end: asked at the keyboard, and by whatever would begin more."""

from __future__ import annotations

import threading

__all__ = ["INTERRUPTED", "INTERRUPTION"]

# As the reason of a stop, by which it is told from others.
INTERRUPTION = "interrupted at the keyboard"
# Of this process, like the signal that sets it.
INTERRUPTED = threading.Event()
