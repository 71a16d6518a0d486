"""LMs: opened from a spec, asked through one adapter, their calls metered, kept and traced."""
