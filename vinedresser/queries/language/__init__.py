"""The language of queries: text to a checked tree, and a tree to functions."""
