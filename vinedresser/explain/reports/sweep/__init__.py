"""The page about a sweep."""
