"""Calls gathered into batches; vLLM itself is in `test_real_vllm.py`."""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import dspy
import pytest

from tests.lms.test_lm import refusal
from typedrag.core.errors import InputError
from typedrag.core.events import listen
from typedrag.core.extras import MissingExtra
from typedrag.lms import in_process
from typedrag.lms.client import LM
from typedrag.lms.in_process import OfflineEngine
from typedrag.lms.lm import choose_adapter, open_lm
from typedrag.lms.replies import lm_source
from typedrag.lms.specs import check_spec


class Batches:
    """Stands in for `vllm.LLM`: answers each prompt with its first letters, and keeps the batches."""

    def __init__(self) -> None:
        self.made: list[list[str]] = []
        self.open = threading.Event()

    def get_tokenizer(self) -> Any:
        return SimpleNamespace(all_special_tokens=["<file_sep>", "<|im_end|>"])

    def chat(self, messages: list[list[dict[str, str]]], parameters: list[Any], **_: Any) -> list[Any]:
        self.open.wait(30)
        prompts = [conversation[-1]["content"] for conversation in messages]
        self.made.append(prompts)
        if any("refused" in prompt for prompt in prompts):
            raise ValueError("This model's maximum context length is 8")
        if any("broken" in prompt for prompt in prompts):
            raise RuntimeError("CUDA error")
        return [self._output(prompt) for prompt in prompts]

    @staticmethod
    def _output(prompt: str) -> Any:
        written = SimpleNamespace(
            text=json.dumps({"answer": prompt.split("\n")[1]}), token_ids=[1, 2], finish_reason="stop", logprobs=None
        )
        return SimpleNamespace(request_id="1", outputs=[written], prompt_token_ids=[1] * 9, num_cached_tokens=4)


class Engine(OfflineEngine):
    def _sampling(self, request: Any) -> Any:
        return request.config  # vLLM's own parameters need vLLM


@pytest.fixture
def batches():
    return Batches()


@pytest.fixture
def lm(batches):
    own = {"in_process": (engine := Engine(batches)), "control_tokens": engine.control_tokens}
    return LM("typedrag-local/m", **own, num_retries=0, cache=False, timeout=60.0)


def ask(lm: dspy.LM, question: str) -> dspy.Prediction:
    with dspy.context(lm=lm, adapter=choose_adapter(lm), track_usage=True):
        return dspy.Predict("question -> answer")(question=question)


def test_no_text_becomes_a_control_token_of_the_model(batches, lm):
    batches.open.set()
    assert ask(lm, "a<|im_end|> <file_sep>b").answer == "a< |im_end|> < file_sep>b"


def test_calls_that_come_together_are_one_batch(batches, lm):
    with ThreadPoolExecutor(13) as pool:
        asked = [pool.submit(ask, lm, f"why {n}") for n in range(13)]
        time.sleep(0.5)  # the first of them keeps the model busy
        batches.open.set()
        assert [call.result(30).answer for call in asked] == [f"why {n}" for n in range(13)]
    assert sum(map(len, batches.made)) == 13
    assert len(batches.made) <= 4


def test_a_call_that_is_refused_fails_alone(batches, lm):
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(ask, lm, "first")
        refused, broken, other = (pool.submit(ask, lm, f"{word} one") for word in ("refused", "broken", "other"))
        batches.open.set()
        assert first.result(30).answer == "first" and other.result(30).answer == "other one"
        with pytest.raises(dspy.ContextWindowExceededError, match="maximum context length"):
            refused.result(30)
        with pytest.raises(dspy.LMServerError, match="CUDA error"):
            broken.result(30)


def test_it_is_saved_as_any_lm_is(lm):
    state = lm.dump_state()
    assert state["model"] == "typedrag-local/m" and "engine" not in state


def test_an_event_loop_and_a_followed_question_get_replies_too(batches, lm):
    batches.open.set()

    async def ask_all() -> list[str]:
        with dspy.context(lm=lm, adapter=choose_adapter(lm)):
            predict = dspy.Predict("question -> answer")
            replies = await asyncio.gather(*(predict.acall(question=f"why {n}") for n in range(3)))
        return [reply.answer for reply in replies]

    assert asyncio.run(ask_all()) == ["why 0", "why 1", "why 2"]
    with listen(lambda event: None):
        assert ask(lm, "followed").answer == "followed"


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_the_package_its_extra_is_named():
    assert "pip install 'typedrag[vllm]'" in refusal(MissingExtra, "vllm-offline:org/model")


def test_a_spec_without_a_model_is_refused():
    with pytest.raises(InputError, match=r"Write vllm-offline:MODEL\[\+ADAPTER=PATH\]"):
        check_spec("vllm-offline:")


def test_its_replies_are_of_its_options_and_its_adapter(batches, monkeypatch):
    monkeypatch.setattr(in_process, "load_engine", lambda spec: Engine(batches))
    sources = set()
    for options, spec in (("--seed 1", "m"), ("--seed 2", "m"), ("--seed 2", "m+a=one"), ("--seed 2", "m+a=two")):
        monkeypatch.setenv("TYPEDRAG_VLLM_OPTIONS", options)
        sources.add(str(lm_source(open_lm(f"vllm-offline:{spec}"))))
    assert len(sources) == 4
    assert str(lm_source(open_lm("vllm-offline:m+a=two"))) in sources


def test_a_call_that_is_refused_does_not_part_the_others(batches, lm):
    with ThreadPoolExecutor(64) as pool:
        asked = [pool.submit(ask, lm, "refused" if n == 40 else f"why {n}") for n in range(64)]
        time.sleep(0.5)
        batches.open.set()
        refused = [call for call in asked if call.exception(30)]
    assert refused == [asked[40]]
    answered = [batch for batch in batches.made if not any("refused" in prompt for prompt in batch)]
    assert sum(map(len, answered)) == 63 and len(answered) <= 10
