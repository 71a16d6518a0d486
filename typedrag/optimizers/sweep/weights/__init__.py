"""Weights of sub-question coverage that predict the preferences of people or of another judge."""
