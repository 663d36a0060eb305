"""Families of drawn photographs, with the networks of tutorials."""
