"""What an answer should cover, and what a text covers of it: asked by metrics, and within programs."""
