"""Sealed families of what people choose and answer."""
