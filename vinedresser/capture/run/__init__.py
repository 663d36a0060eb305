"""The run that a hook writes to: finding, creating, uploading and closing it."""
