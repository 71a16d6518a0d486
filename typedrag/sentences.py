"""The sentences of a text in any script: answers are cited, compared and judged by them."""

from __future__ import annotations

import regex

# ends that need no space after them, with the quotes and brackets that they close
_ENDS = regex.compile(r".+?(?:[。｡！？।॥؟۔։።፧။།៕]+[\p{Pe}\p{Pf}\"']*|$)")


def sentences(text: str) -> list[str]:
    """The sentences of a text, each line for itself; what has no letters, such as a number, belongs to the next.

    Example:
        >>> sentences("Yeast makes gas. Dough rises!\\n1. Knead it.\\n2. Bake it")
        ['Yeast makes gas.', 'Dough rises!', '1. Knead it.', '2. Bake it']
        >>> sentences("酵母产生气体。面团发起来。"), sentences("खमीर गैस बनाता है। आटा फूलता है।")
        (['酵母产生气体。', '面团发起来。'], ['खमीर गैस बनाता है।', 'आटा फूलता है।'])
    """
    from nltk.tokenize.punkt import PunktSentenceTokenizer

    split = PunktSentenceTokenizer().tokenize
    found: list[str] = []
    for line in text.splitlines():
        begun, first = "", len(found)
        for piece in (p.strip() for part in split(line.strip()) for p in _ENDS.findall(part) if p.strip()):
            if not begun and len(found) > first and not any(sign.isalnum() for sign in piece):
                found[-1] += piece  # what closes a bracket or a quotation
                continue
            begun = f"{begun} {piece}".strip()
            if any(letter.isalpha() for letter in piece):
                found.append(begun)
                begun = ""
        if begun:
            found.append(begun)
    return found
