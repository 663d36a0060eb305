"""Opening the hook of a training that was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vinedresser.capture.run.attachment import Attachment

if TYPE_CHECKING:
    from vinedresser.capture.attach.attached_hook import AttachedHook

__all__ = ["attach_hook"]


def attach_hook(attachment: Attachment, before: AttachedHook | None) -> AttachedHook:
    """Return the hook for a training; see `Attachment.begin`."""
    # A process that trains nothing does not need the hook's imports.
    from vinedresser.capture.attach.attached_hook import AttachedHook

    return attachment.begin(AttachedHook, before)
