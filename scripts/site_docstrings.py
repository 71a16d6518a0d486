"""Changes docstrings before mkdocstrings reads them."""

import re
from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Shows an `Example:` as code: the style knows the heading in the plural alone."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put the heading in the plural."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
