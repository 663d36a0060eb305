"""Report of a sweep."""
