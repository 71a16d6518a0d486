"""Compare runs: paired differences, verdicts, and disagreements of rank and truth."""
