"""Sealed families with other libraries, which are imported when one of them trains."""
