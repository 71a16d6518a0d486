"""Rerankers, found by name."""
