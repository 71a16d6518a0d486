"""Builders, which make datasets: from others' files, and with an LM that writes or labels."""
