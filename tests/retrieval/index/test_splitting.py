import time

import pytest

from typedrag.retrieval.index.splitting import Block, split_blocks, split_text, word_count

CHINESE = "面包发酵是因为酵母吃掉面团里的糖并放出二氧化碳，气体被面筋网络包住，所以面团会慢慢变大。"
SCRIPTS = {
    "Chinese": CHINESE,
    "Chinese without sentence ends": CHINESE[:-1],
    "Japanese": "パンが膨らむのは酵母が糖を食べて炭酸ガスを出すからです。",
    "Thai": "ขนมปังขึ้นฟูเพราะยีสต์กินน้ำตาลและปล่อยแก๊ส",
    "base64": "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo",
    "a transcript": "and then you let it rise you know ",
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_passages_are_bounded_in_any_script(script):
    text = SCRIPTS[script] * (20_000 // len(SCRIPTS[script]))
    passages = split_text(text)
    assert all(70 <= word_count(passage) <= 120 for passage in passages[:-1])
    assert all(len(passage) <= 1_200 for passage in passages)
    assert "".join(passages).replace(" ", "") == text.replace(" ", "")  # nothing is lost, nothing twice


@pytest.mark.parametrize("unit", ["word ", "QUJDREVGR0hJSktM", CHINESE[:22]])
def test_the_time_grows_with_the_length_alone(unit):
    def seconds(characters: int) -> float:
        started = time.process_time()
        split_text(unit * (characters // len(unit)))
        return time.process_time() - started

    seconds(1_000)
    assert seconds(200_000) < 10 * seconds(50_000)  # as its square it would take 16 times as long


def test_a_long_english_text_is_split_as_in_one_go():
    from semantic_text_splitter import TextSplitter

    whole = TextSplitter.from_callback(lambda text: len(text.split()), (70, 120))
    paragraphs = [
        " ".join(f"Sentence {n} of paragraph {p} says that dough rises, e.g. at 27.5 degrees." for n in range(p % 23))
        for p in range(300)
    ]
    for separator in ("\n\n", "\n", " "):
        text = separator.join(paragraphs)
        assert split_text(text) == [" ".join(piece.split()) for piece in whole.chunks(text)]


def test_a_heading_stays_with_what_follows():
    code = "\n".join(f"day {n}: discard half, then feed the starter with flour and water" for n in range(40))
    blocks = [Block("# Feeding", "heading"), Block(code, "lines", "```text", "```"), Block("## Next", "heading")]
    passages = list(split_blocks([*blocks, Block("Bake it. " * 60)]))
    assert passages[0].startswith("# Feeding\n```text\nday 0: discard")
    assert all(p.splitlines()[-1] == "```" for p in passages if "day" in p)
    [last] = [p for p in passages if "## Next" in p]
    assert last.startswith("## Next\nBake it.")


def test_a_table_has_its_header_in_each_passage_and_no_row_is_parted():
    rows = [f"| flour {n} | {n} grams of it | {n} percent water |" for n in range(100)]
    header = "| Flour | Weight | Water |\n|---|---|---|"
    passages = list(split_blocks([Block("\n".join(rows), "lines", header)]))
    assert len(passages) > 5
    assert all(passage.startswith(header + "\n") for passage in passages)
    assert [line for p in passages for line in p.splitlines()[2:]] == rows
    assert all(word_count(passage) <= 120 for passage in passages)


def test_code_keeps_its_lines_and_is_parted_between_functions():
    code = "\n\n".join(f"def function_{n}(a, b):\n    return a + b * {n}" for n in range(60))
    passages = list(split_blocks([Block("# C", "heading"), Block(code, "lines", "```python", "```")]))
    assert len(passages) > 2
    assert "def function_0(a, b):\n    return a + b * 0\n" in passages[0]
    assert all(p.count("def ") == p.count("    return ") for p in passages)


def test_sections_end_passages_that_are_long_enough():
    blocks = [Block("# A", "heading"), Block("word " * 80), Block("# B", "heading"), Block("word " * 20)]
    assert [p[:3] for p in split_blocks(blocks)] == ["# A", "# B"]
    blocks = [Block("# A", "heading"), Block("word " * 20), Block("# B", "heading"), Block("word " * 20)]
    assert len(list(split_blocks(blocks))) == 1


def test_a_header_too_wide_to_be_repeated_stands_once_before_its_rows():
    header, rows = "\t".join(f"column {n}" for n in range(60)), [f"row {n}\tcell" for n in range(90)]
    text = "\n".join(split_blocks([Block("\n".join(rows), "lines", header)]))
    assert text.split() == f"{header} {' '.join(rows)}".split()
