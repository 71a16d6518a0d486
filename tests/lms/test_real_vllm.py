"""vLLM itself, with a small model. It takes minutes on a CPU.

TYPEDRAG_TEST_VLLM names the folder with the command `vllm` (its `python` must have DSPy for the tests in one process),
TYPEDRAG_TEST_VLLM_MODEL a model's folder, and TYPEDRAG_VLLM_OPTIONS what that machine needs.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.lms.test_lm import closed_port
from tests.lms.test_vllm import until

_FOLDER, _MODEL = os.environ.get("TYPEDRAG_TEST_VLLM"), os.environ.get("TYPEDRAG_TEST_VLLM_MODEL")
pytestmark = pytest.mark.skipif(
    not (_FOLDER and _MODEL), reason="no vLLM here: set TYPEDRAG_TEST_VLLM and TYPEDRAG_TEST_VLLM_MODEL"
)
_SECONDS = 900
_ASKING = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from typing import Literal
import dspy
from typedrag.lms import lm as lms
from typedrag.lms.asking import logprob_settings, label_probabilities

class Sort(dspy.Signature):
    '''Say which kind of question this is.'''
    question: str = dspy.InputField()
    kind: Literal["reason", "debate", "comparison"] = dspy.OutputField()

lms.DEFAULT = sys.argv[2]
lm = lms.open_lm(sys.argv[1], max_tokens=24, timeout=600, cache=False)

def ask(question):
    with lms.use_lm(lm), dspy.track_usage() as usage:
        reply = dspy.Predict(Sort)(question=question, config=logprob_settings())
        probabilities = label_probabilities(reply.logprobs, reply.kind, ("reason", "debate", "comparison"))
        [used] = usage.get_total_tokens().values()
        return {"kind": reply.kind, "probabilities": probabilities, "usage": used}

questions = ["Why is the sky blue?", "Is it right to eat meat?", "Which is faster, a train or a plane?"]
with ThreadPoolExecutor(3) as pool:
    replies = list(pool.map(ask, questions))
try:
    ask("why " * 20000)
    refused = False
except dspy.LMInvalidRequestError as error:
    refused = "maximum" in str(error)
base = lm.kwargs.get("api_base")
print(json.dumps({"replies": replies, "again": ask(questions[0]), "refused": refused, "base": base}))
"""

_OF_BOTH = """
import json, sys
from typedrag.lms import lm as lms

lms.DEFAULT = sys.argv[3]
adapter, model = (lms.open_lm(spec, max_tokens=24, timeout=600, cache=False) for spec in sys.argv[1:3])
texts = [lm("Why is the sky blue?")[0] for lm in (adapter, model, adapter)]
replies = dict(zip(("adapter", "model", "again"), (str(text) for text in texts)))
print(json.dumps(replies | {"bases": [lm.kwargs["api_base"] for lm in (adapter, model)]}))
"""


def written_adapter(folder: Path) -> Path:
    """The folder of a LoRA adapter of the model, with random weights."""
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(_MODEL)
    settings = peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    peft.get_peft_model(model, settings).save_pretrained(folder)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    root = str(Path(__file__).parents[3])
    path = f"{_FOLDER}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": root, "TYPEDRAG_CACHE": str(tmp_path), "VLLM_NO_USAGE_STATS": "1"}


def asked(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    [line] = done.stdout.splitlines()  # vLLM writes nothing among the answers
    result: dict[str, Any] = json.loads(line)
    return result


def check(result: dict[str, Any]) -> None:
    for reply in (*result["replies"], result["again"]):
        assert reply["kind"] in ("reason", "debate", "comparison")
        assert sum(reply["probabilities"].values()) == pytest.approx(1)
        assert reply["usage"]["prompt_tokens"] > 50
    assert result["again"]["kind"] == result["replies"][0]["kind"]
    assert result["again"]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert result["refused"]


def test_a_real_server_is_started_shared_and_stopped(environment):
    command = [sys.executable, "-c", _ASKING, f"vllm:{_MODEL}", closed_port()]
    before = {process.pid for process in psutil.process_iter()}
    check(asked(command, environment))
    until(lambda: not [p for p in psutil.process_iter() if p.pid not in before and "EngineCore" in p.name()])
    log = next(Path(environment["TYPEDRAG_CACHE"]).glob("vllm/*/vllm.log")).read_text()
    assert "'enable_prompt_tokens_details': True" in log


def test_a_real_adapter_answers_beside_its_model(environment, tmp_path):
    adapter = written_adapter(tmp_path / "adapter")
    spec = f"vllm:{_MODEL}+shifted={adapter}"
    result = asked([sys.executable, "-c", _OF_BOTH, spec, f"vllm:{_MODEL}", closed_port()], environment)
    assert result["adapter"] == result["again"]
    assert result["adapter"] != result["model"]
    assert result["bases"][0] == result["bases"][1]  # one server has both


def test_the_same_in_one_process(environment):
    python = str(Path(str(_FOLDER)) / "python")
    if subprocess.run([python, "-c", "import dspy, vllm"], capture_output=True).returncode:
        pytest.skip(f"{python} lacks DSPy")
    result = asked([python, "-c", _ASKING, f"vllm-offline:{_MODEL}", closed_port()], environment)
    check(result)
    assert result["base"] is None
