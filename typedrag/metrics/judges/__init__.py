"""Judges of answers: what ranks, grades, compares or checks them, with an LM or without."""
