"""The page about a monitor."""
