"""The sub-questions that an answer should cover, and judges of what a text covers, for metrics and programs."""
