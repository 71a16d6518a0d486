import dspy

from tests.scripted import scripted
from tests.scripted import signatures as s
from typedrag.builders.question_types import QuestionTypes
from typedrag.core.question_types import QuestionForm, QuestionType
from typedrag.datasets import load_dataset
from typedrag.files.text_files import write_json_lines
from typedrag.runs.work import Stages

SETTINGS = QuestionTypes(
    domain=("a bakery: bakers", "a bank: pensioners"),
    type=(QuestionType.REASON, QuestionType.FACTOID),
    form=(QuestionForm.KEYWORDS,),
    retries=0,
)


def written(prompt: str) -> dict:
    """A clear question and an unclear one, and one that every domain and type has."""
    kind = "why" if "its causes or motives" in prompt else "when"
    return {"questions": [f"{kind} bread {len(prompt)}", f"{kind} or not {len(prompt)}", "Bread"]}


def labelled(prompt: str) -> dict:
    question = prompt.split("[[ ## question ## ]]\n")[1]
    return {"question_type": "reason" if question.startswith("why bread") else "factoid"}


def test_questions_stay_whose_type_a_second_label_confirms(tmp_path):
    with scripted({s.WriteQuestions: written, s.ClassifyQuestion: labelled}) as engine:
        built = SETTINGS.build(Stages(), lambda _: dspy.settings.lm)
    assert engine.asked().count("WriteQuestions") == 4 and engine.asked().count("ClassifyQuestion") == 9
    assert built.left_out == {"it repeats another": 3, "two labels differ": 3}  # "why or not" twice, and "Bread"
    assert [(row["type"], row["form"]) for row in built.rows].count(("reason", "keywords")) == 2
    write_json_lines(tmp_path / "made.jsonl", built.rows)
    read = load_dataset("everyday", tmp_path / "made.jsonl").examples
    assert [(e.question, e.question_type, e.subset) for e in read] == [
        (row["question"], row["type"], row["form"]) for row in built.rows
    ]
