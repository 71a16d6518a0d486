import pytest

from typedrag.core.errors import InputError
from typedrag.datasets.richrag import Pool
from typedrag.optimizers.list_ranker.measures import graded_table, silver_list, utility_table


def pool(passages, **fields) -> Pool:
    rows = [{"id": str(n), **passage} for n, passage in enumerate(passages)]
    return Pool.model_validate({"id": "q", "question": "Why?", "passages": rows, **fields})


def test_a_coverage_counts_before_sub_answers_and_those_before_labels():
    texts = [{"text": "old yeast makes gas", "label": 0}, {"text": "flour is heavy", "label": 2}]
    assert utility_table(pool(texts)).tolist() == [[0.0], [1.0]]
    answered = pool(texts, sub_answers=["old yeast", "heavy flour"])
    assert utility_table(answered)[0].tolist() == [1.0, 0.0]  # ROUGE-2 and ROUGE-L recall of the first: 1 and 1
    assert utility_table(answered)[1].tolist() == [0.0, 0.25]  # of the second: no pair of words, one word of two
    covered = pool([{**t, "coverage": [0.1 * n, 0.5]} for n, t in enumerate(texts)], sub_answers=["x y"])
    assert utility_table(covered).tolist() == [[0.0, 0.5], [0.1, 0.5]]
    with pytest.raises(InputError, match="pool 'q' says nothing"):
        utility_table(pool([{"text": "a"}, {"text": "b", "label": 0}]))


def test_sub_answers_are_covered_in_any_script():
    texts = [{"text": "Кошки спят весь день."}, {"text": "Старые дрожжи выделяют мало газа."}]
    table = utility_table(pool(texts, sub_answers=["дрожжи выделяют газ", "мало газа"]))
    assert table[0].tolist() == [0.0, 0.0] and table[1].all() and silver_list(table, 2) == [1]


def test_the_silver_list_by_hand():
    # first the third (0.5 + 0.3); then w = (1 - 5/8, 1 - 3/8) = (3/8, 5/8):
    # the first adds 0.6 * 3/8 = 0.225, the second 0.4 * 5/8 = 0.25
    table = [[0.6, 0.0], [0.0, 0.4], [0.5, 0.3]]
    assert silver_list(table, 2) == [2, 1]
    assert silver_list(table, 1) == [2]


def test_a_second_passage_of_one_way_to_answer_is_worth_nothing_more():
    assert silver_list([[0.9], [0.8], [0.0]], 3) == [0]
    assert silver_list([[0.0, 0.0]], 3) == []


def test_better_grades_come_first_and_repetitions_later():
    texts = ["let it rise for long", "let it rise for long", "buy fresh old yeast", "use warm milk instead", "no idea"]
    table = graded_table(texts, [3, 3, 3, 2, 0], relevant_from=2)
    assert table.shape == (5, 3)
    assert silver_list(table, 10) == [0, 2, 3, 1]
