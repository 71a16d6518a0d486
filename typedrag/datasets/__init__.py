"""Named datasets; so far the sample corpus."""

from typedrag.datasets.sample import SampleQuestion, sample_questions

__all__ = ["SampleQuestion", "sample_questions"]
