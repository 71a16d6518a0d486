"""Judges that rank, grade, compare or check answers, with an LM or without."""
