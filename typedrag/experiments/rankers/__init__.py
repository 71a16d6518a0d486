"""Rankers by themselves: pools to train and measure them with, training, and measuring."""
