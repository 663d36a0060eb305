"""Terminal views."""
