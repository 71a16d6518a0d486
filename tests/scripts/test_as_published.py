import pytest

from scripts import as_published


@pytest.mark.parametrize("paper", as_published.PAPERS)
def test_items_name_code_and_tests_that_exist_and_tell_each_difference(paper):
    items = as_published.read_items(paper)
    assert len({item.id for item in items}) == len(items)
    for item in items:
        assert as_published.find_code(item.code) or item.verdict == "missing", item.id
        assert not item.shown or as_published.find_test(item.shown), item.id
        if item.verdict != "as published":
            assert item.how and (as_published.ROOT / item.told).is_file(), item.id


def test_the_page_is_made_from_the_items():
    assert as_published.PAGE.read_text(encoding="utf-8") == as_published.render_page()


def test_names_that_do_not_exist_are_found_out():
    assert as_published.find_code("typedrag.metrics.judges.linkage.NoSuchJudge") is None
    assert as_published.find_code("configs/papers/nothing.yaml") is None
    assert as_published.find_test("tests/scripts/test_as_published.py::test_nothing") is None
