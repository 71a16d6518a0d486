"""Serves an index over HTTP, for programs on other machines."""
