"""The calls, tokens and cost of LMs, counted as the calls are made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from typedrag.lms.prices import Price, own_price
from typedrag.records import Usage

if TYPE_CHECKING:
    import dspy

LEDGER = "spending.jsonl"
"""The file in which a compile keeps what it spends, a line for each LM call."""

_ACCOUNTS = "typedrag_accounts"
"""A key of DSPy's settings, which reach threads that carry the context, and also those that DSPy makes, which
carry nothing else."""


@dataclass(frozen=True)
class Spending:
    """LM calls and tokens, and their price where it is known.

    Attributes:
        usage: Calls whose replies were kept are not counted.
        dollars: Of the calls whose price is known: by the user's table (see `prices`), else by LiteLLM's.
        unpriced: Calls whose price neither knows, such as those of one's own server.

    Example:
        >>> Spending(Usage(1, 10, 5), dollars=0.25) + Spending(Usage(2, 20, 5), unpriced=2)
        Spending(usage=Usage(lm_calls=3, prompt_tokens=30, completion_tokens=10, uncounted=0), dollars=0.25, unpriced=2)
    """

    usage: Usage = field(default_factory=Usage)
    dollars: float = 0.0
    unpriced: int = 0

    def __add__(self, other: Spending) -> Spending:
        return Spending(self.usage + other.usage, self.dollars + other.dollars, self.unpriced + other.unpriced)

    @property
    def tokens(self) -> int:
        """Tokens read and written, as far as servers report them."""
        return self.usage.prompt_tokens + self.usage.completion_tokens

    @property
    def cost(self) -> float | None:
        """The cost in dollars; None if no call's price is known."""
        return self.dollars if self.unpriced < self.usage.lm_calls else None

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of MLflow, of evaluations, compiles and sweeps alike; no cost where no price is known."""
        usage = self.usage
        counts = {"lm_calls": usage.lm_calls, "tokens": self.tokens, "prompt_tokens": usage.prompt_tokens}
        counts |= {"completion_tokens": usage.completion_tokens} | ({"uncounted": n} if (n := usage.uncounted) else {})
        cost = {} if self.cost is None else {"cost": self.cost, "unpriced": float(self.unpriced)}
        return {f"spent/{name}": value for name, value in {**counts, **cost}.items()}

    def times(self, factor: float) -> Spending:
        """The product with a factor, in whole calls and tokens."""
        usage = Usage(**{name: round(value * factor) for name, value in asdict(self.usage).items()})
        return Spending(usage, self.dollars * factor, round(self.unpriced * factor))

    def priced(self, price: Price) -> Spending:
        """The same, with a price for the calls that have none: their share of the tokens is that of the calls.

        Calls whose tokens are not told stay without one.

        Example:
            >>> Spending(Usage(2, 1_000_000, 0), unpriced=2).priced(Price(prompt=0.5, completion=1.5)).dollars
            0.5
        """
        if not self.unpriced:
            return self
        share = self.unpriced / self.usage.lm_calls
        left = min(self.unpriced, self.usage.uncounted)
        return Spending(self.usage, self.dollars + share * price.of(self.usage), left)

    def to_dict(self) -> dict[str, Any]:
        """One flat JSON object of it."""
        return {**asdict(self.usage), "dollars": self.dollars, "unpriced": self.unpriced}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Spending:
        """The one that `to_dict` gave."""
        usage = Usage(data["lm_calls"], data["prompt_tokens"], data["completion_tokens"], data.get("uncounted", 0))
        return cls(usage, data["dollars"], data["unpriced"])


def in_dollars(amount: float) -> str:
    """An amount with cents, or with two digits where it is small.

    Example:
        >>> in_dollars(1234.5), in_dollars(0.00213), in_dollars(0)
        ('$1,234.50', '$0.0021', '$0.00')
    """
    if amount >= 0.1 or not amount:
        return f"${amount:,.2f}"
    return "$" + f"{float(f'{amount:.2g}'):.12f}".rstrip("0")


class Account:
    """A sum of spending that many threads add to; `listener` is called with each addition."""

    def __init__(
        self, spent: Spending | None = None, listener: Callable[[Spending], object] = lambda spent: None
    ) -> None:
        self._spent, self._listener = spent or Spending(), listener
        self._lock = threading.Lock()

    def add(self, spending: Spending) -> None:
        """Add spending to the sum."""
        with self._lock:
            self._spent += spending
        self._listener(spending)

    @property
    def spent(self) -> Spending:
        """The sum so far."""
        with self._lock:
            return self._spent


@contextmanager
def charging(account: Account) -> Iterator[Account]:
    """Add the spending of metered LMs within to this account and to those around it.

    Calls of threads that carry the context count too, and so do those of `dspy.Evaluate` and
    `dspy.Parallel`.
    """
    import dspy  # not above: reading a run does without

    with dspy.context(**{_ACCOUNTS: (*_charged(), account)}):
        yield account


def metered(lm: dspy.LM) -> dspy.LM:
    """The LM, changed so that its calls are charged.

    An LM of `open_lm` charges each call itself. Of any other LM, DSPy tells the cost of a call only where it writes the
    call's history, so this charges there. A metered LM keeps no history: in a long run it would hold thousands of
    prompts.
    """
    lm.update_history = _forget if getattr(lm.engine, "counts", False) else _charge
    return lm


def charge_call(call: Mapping[str, Any]) -> None:
    """Charge a call that was made.

    Args:
        call: An entry of DSPy's call history.
    """
    replies = call["response"]
    calls = max(1, len(replies)) if isinstance(replies, list | tuple) else 1  # one each of several requested at once
    usage = Usage.of_call(call["usage"] or {}, calls)
    price = None if usage.uncounted else own_price(call["model"])
    cost = price.of(usage) if price else call["cost"]
    charge(Spending(usage, cost or 0.0, unpriced=calls * int(cost is None)))


def charge(spending: Spending) -> None:
    """Charge what was spent, here or in another process."""
    for account in _charged():
        account.add(spending)


def _charge(call: Mapping[str, Any]) -> None:
    if call["usage"]:  # else a cache answered; DSPy does not tell this from a server that reports no tokens
        charge_call(call)


def _forget(call: Mapping[str, Any]) -> None:
    """Keep no history."""


def _charged() -> tuple[Account, ...]:
    import dspy

    return dspy.settings.get(_ACCOUNTS, ())
