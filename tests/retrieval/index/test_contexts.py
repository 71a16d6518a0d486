import pytest

from tests.builders.native import MUSIQUE, TWO_WIKI
from tests.datasets.files import write_json, write_jsonl
from typedrag.core.errors import InputError
from typedrag.retrieval.index.sources import read_contexts

HOTPOTQA = {
    "_id": "5a8b",
    "question": "Were both bridges built of steel?",
    "answer": "no",
    "type": "comparison",
    "level": "hard",
    "supporting_facts": [["Forth Bridge", 0]],
    "context": [["Forth Bridge", ["John Fowler designed it."]], ["Leeds", ["It lies on", " the Aire."]]],
}


def passages(*sources, **settings):
    return [(p.passage.title, p.passage.text) for p in read_contexts(sources, **settings)]


def test_the_contexts_of_all_questions_are_passages_once_whatever_file_they_are_in(tmp_path):
    musique = write_jsonl(tmp_path / "musique_ans_v1.0_dev.jsonl", MUSIQUE, {**MUSIQUE, "id": "2hop__1_2"})
    assert len(passages(musique)) == len(MUSIQUE["paragraphs"])
    hotpotqa = write_json(tmp_path / "hotpot_dev_distractor_v1.json", [HOTPOTQA])
    both = list(read_contexts([musique, hotpotqa]))
    assert [(p.passage.title, p.passage.text) for p in both] == passages(musique)  # Forth Bridge and Leeds are there
    assert len({p.passage.id for p in both}) == len(both)
    two_wiki = write_json(tmp_path / "dev.json", [TWO_WIKI])
    assert passages(two_wiki) == [
        ("Queen Hyojeong", "She was the wife of Heonjong of Joseon. She died in 1904."),
        ("Heonjong of Joseon", "His father was Crown Prince Hyomyeong."),
        ("Jeongjo", "He reigned before."),
    ]
    assert next(read_contexts([hotpotqa])).passage.id == both[0].passage.id


@pytest.mark.parametrize(
    "bad", [{"question": "Who?"}, {"paragraphs": [{"title": "T"}]}, {"context": [["T"]]}, {"context": [[1, ["T."]]]}]
)
def test_a_question_without_contexts_is_named_or_left_out(tmp_path, bad):
    file = write_jsonl(tmp_path / "questions.jsonl", MUSIQUE, bad)
    with pytest.raises(InputError, match="line 2"):
        passages(file)
    assert len(passages(file, skip_bad=True)) == len(MUSIQUE["paragraphs"])


def test_a_source_that_is_not_there_is_refused_before_any_is_read(tmp_path):
    file = write_jsonl(tmp_path / "musique_ans_v1.0_dev.jsonl", MUSIQUE)
    with pytest.raises(InputError, match=r"source .*train\.json is no file"):
        next(read_contexts([file, tmp_path / "train.json"]))
