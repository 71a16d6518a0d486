"""Numbers out of ranks, labels and ratings; nothing here asks an LM."""
