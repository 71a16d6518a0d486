"""Making programs better by measuring: compiling, sweeping, training."""
