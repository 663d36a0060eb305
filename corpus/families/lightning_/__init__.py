"""Families trained by Lightning, which is imported when one of them trains."""
