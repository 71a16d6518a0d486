"""Run programs over a dataset: answer, measure, and keep the results in a folder."""
