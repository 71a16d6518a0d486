"""The sentences of a text."""

from __future__ import annotations


def sentences(text: str) -> list[str]:
    """The sentences of a text, each line for itself; what has no letters, such as a number, belongs to the next.

    Example:
        >>> sentences("Yeast makes gas. Dough rises!\\n1. Knead it.\\n2. Bake it")
        ['Yeast makes gas.', 'Dough rises!', '1. Knead it.', '2. Bake it']
    """
    from nltk.tokenize.punkt import PunktSentenceTokenizer

    split = PunktSentenceTokenizer().tokenize
    found: list[str] = []
    for line in text.splitlines():
        begun = ""
        for piece in split(line.strip()) if line.strip() else ():
            begun = f"{begun} {piece}".strip()
            if any(letter.isalpha() for letter in piece):
                found.append(begun)
                begun = ""
        if begun:
            found.append(begun)
    return found
