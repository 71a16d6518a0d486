"""Asks a system the same questions as all others, and prints what that took; needs the standard library alone."""

import asyncio
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

TOPICS = ("glaciers melt", "empires fall", "volcanoes erupt", "languages change", "markets crash", "stars die",
          "rivers flood", "birds migrate")  # fmt: skip
QUESTIONS = [f"Why do {topic} in {place}?" for place in ("Asia", "Europe", "Africa", "America") for topic in TOPICS]
TEMPLATE = "[[ ## question ## ]]\n{}\n\n"
"""The question as the stub LM looks for it, so that sub-questions are about the same in all systems."""
SUB_QUESTION = {"type": "string", "pattern": r"\?$"}
"""The JSON schema of a sub-question, for the stub LM."""

Ask = Callable[[str], Awaitable[object]]


def passages() -> list[dict[str, str]]:
    """The passages of the file that the first argument names: `id`, `title` and `text`."""
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def api_base() -> str:
    """The address of the stub LM, from the second argument."""
    return sys.argv[2]


def lm_calls() -> int:
    """LM calls that the stub has begun to serve."""
    with urllib.request.urlopen(f"{api_base()}/stats") as reply:
        return int(json.load(reply)["calls"])


def peak_mb() -> float:
    """The most memory that this process has had; `getrusage` would count that of the process that started it, too."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1000


def measure(ask: Ask) -> None:
    """Ask all questions one by one and at once, after as much to warm up, and print the figures as JSON."""
    asyncio.run(_measure(ask))


async def _measure(ask: Ask) -> None:
    for question in QUESTIONS:
        await ask(question)
    await asyncio.gather(*map(ask, QUESTIONS))
    calls, cpu, seconds = lm_calls(), time.process_time(), []
    for question in QUESTIONS:
        begun = time.perf_counter()
        await ask(question)
        seconds.append(time.perf_counter() - begun)
    alone = {
        "seconds": statistics.median(seconds),
        "cpu_ms": 1000 * (time.process_time() - cpu) / len(QUESTIONS),
        "lm_calls": (lm_calls() - calls) / len(QUESTIONS),
    }
    begun, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(ask, QUESTIONS))
    at_once = {
        "seconds": time.perf_counter() - begun,
        "cpu_ms": 1000 * (time.process_time() - cpu) / len(QUESTIONS),
        "peak_mb": peak_mb(),
    }
    print(json.dumps({"alone": alone, "at_once": at_once}))
