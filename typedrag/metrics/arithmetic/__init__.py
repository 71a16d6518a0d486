"""Arithmetic on ranks, labels and ratings, without an LM."""
