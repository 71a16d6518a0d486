"""Runs beside each other: paired differences, verdicts, where rank and truth disagree."""
