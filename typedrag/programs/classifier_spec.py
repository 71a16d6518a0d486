"""The grammar of the option `type_classifier`."""

from __future__ import annotations

from typing import NamedTuple

from typedrag.errors import InputError

KINDS = ("linear", "embedding", "lm", "oracle")
FORMS = f"{', '.join(KINDS)}, hub:NAME"


class ClassifierSpec(NamedTuple):
    """A kind of type classifier, and of `hub` the model's name."""

    kind: str
    argument: str = ""

    @classmethod
    def parse(cls, text: str) -> ClassifierSpec:
        """The spec that a text writes.

        Raises:
            InputError: If there is no such type classifier; the message lists the forms.

        Example:
            >>> ClassifierSpec.parse("hub:Lurunchik/nf-cats")
            ClassifierSpec(kind='hub', argument='Lurunchik/nf-cats')
        """
        kind, _, argument = text.partition(":")
        if text not in KINDS and not (kind == "hub" and argument):
            raise InputError(f"'{text}' is no type classifier", f"Write one of: {FORMS}")
        return cls(kind, argument)

    @property
    def asks_lm(self) -> bool:
        """True if it asks an LM."""
        return self.kind == "lm"

    @property
    def is_external(self) -> bool:
        """True if it loads a model that typedrag does not ship."""
        return self.kind == "hub"
