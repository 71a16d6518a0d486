"""HANRAG: a revelator routes, decomposes, refines and discriminates."""

from typedrag.programs.hanrag.program import HANRAG

__all__ = ["HANRAG"]
