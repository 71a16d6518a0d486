"""Weights of sub-question coverage that predict what people, or another judge, say of answers."""
