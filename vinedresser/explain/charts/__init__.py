"""SVG charts."""
