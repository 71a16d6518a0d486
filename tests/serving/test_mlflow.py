import mlflow
from mlflow.models import Model

from tests.lm_server import MODEL, lm_server
from tests.programs.artifact.test_compiled import compiled
from tests.serving.server import served
from typedrag.experiments.tracking.served_model import save_served_program
from typedrag.programs import Options
from typedrag.programs.compiled import save_compiled
from typedrag.serving.programs import ProgramSpec

QUESTIONS = ("How do vaccines protect the body against disease?", "Why does homemade bread turn out dense?")


def test_mlflow_serves_the_same_answers(sample_index, tmp_path, monkeypatch):
    """A compiled program answers alike behind both servers."""
    save_compiled(compiled("rag", Options(top_k=3)), tmp_path / "program")
    save_served_program(tmp_path / "program", tmp_path / "model", Model())
    monkeypatch.setenv("TYPEDRAG_LM", f"vllm:{MODEL}")
    monkeypatch.setenv("TYPEDRAG_INDEX", str(sample_index))
    with lm_server() as lm:
        monkeypatch.setenv("TYPEDRAG_API_BASE", lm.api_base)
        model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
        rows = model.predict([{"question": question} for question in QUESTIONS])
        source = ProgramSpec(str(tmp_path / "program"), lm_settings={"cache": False})
        with served(source.open()) as server:
            answers = [server.ask(question).json() for question in QUESTIONS]
            about = server.client.get("/v1/program").json()
    assert [row["answer"] for row in rows] == [answer["answer"] for answer in answers]
    assert [row["passages"] for row in rows] == [[p["id"] for p in answer["passages"]] for answer in answers]
    assert [row["citations"] for row in rows] == [answer["citations"] for answer in answers]
    assert (about["name"], about["program"]) == ("program", "rag")
    assert about["fingerprint"]
