"""An LM that runs in this process with transformers, to measure a trained model without a server."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, Usage

from typedrag.errors import LMUnavailable, first_line
from typedrag.files.digests import digest_of
from typedrag.lms.lm import TOKENS
from typedrag.optimizers.revelator.chats import prepare
from typedrag.sharing import Shared

_ADAPTED = "adapter_config.json"


def open_local_lm(folder: Path, *, max_tokens: int = TOKENS) -> dspy.LM:
    """Open the causal LM in a folder, or LoRA weights with the base that they name; it decodes greedily.

    It answers one call at a time and does not enforce a schema; for use in earnest, run a server. Call it with
    `SchemaAdapter`, which the revelator is trained with. Replies may be cached: the LM's name holds a digest of
    its files.

    Raises:
        LMUnavailable: If the LM cannot be loaded.
    """
    engine = _Engine(folder, max_tokens)
    return dspy.LM(
        f"local/{folder.resolve().name}-{digest_of(folder)[:8]}",
        engine=engine,
        num_retries=0,
        temperature=0.0,
        max_tokens=max_tokens,
    )


class _Engine(Shared):
    def __init__(self, folder: Path, max_tokens: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        try:
            self._tokenizer = prepare(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))
            if (folder / _ADAPTED).is_file():
                from peft import AutoPeftModelForCausalLM

                # the adapter names its base by a folder, so nothing has to be fetched
                self._model = AutoPeftModelForCausalLM.from_pretrained(
                    folder, trust_remote_code=False, local_files_only=True
                )
            else:
                self._model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)
        except (OSError, ValueError, ImportError) as error:
            raise LMUnavailable(
                f"{folder} holds no LM that can be loaded: {first_line(error)}", "Name what was trained"
            ) from error
        self._model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
        self._max_tokens = max_tokens
        self._lock = threading.Lock()

    def complete(self, request: Request) -> Response:
        """Return the reply to a request of DSPy."""
        import torch

        chat = [{"role": message.role, "content": message.text} for message in request.messages]
        if request.system is not None:
            chat.insert(0, {"role": "system", "content": _text(request.system)})
        prompt = self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        inputs = self._tokenizer(prompt, add_special_tokens=False, return_tensors="pt").to(self._model.device)
        with self._lock, torch.inference_mode():
            whole = self._model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                max_new_tokens=request.config.max_tokens or self._max_tokens,
                do_sample=False,
                pad_token_id=self._tokenizer.pad_token_id,
            )
        read = inputs["input_ids"].shape[1]
        written = whole[0, read:]
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant(self._tokenizer.decode(written, skip_special_tokens=True)),
            finish_reason="stop",
            usage=Usage(input_tokens=read, output_tokens=len(written), total_tokens=read + len(written)),
        )


def _text(system: Any) -> str:
    return system if isinstance(system, str) else "".join(part.text for part in system)
