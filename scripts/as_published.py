"""Writes docs/systems/as-published.md: each item of the papers, whether typedrag has it, where, and what shows it.

The items are docs/systems/items/PAPER.yaml, a list of items with these keys:

id, kind, where     a stable name; algorithm, setting, prompt and so on; the place in the paper
item                one sentence on what the paper has
verdict, how        as published, open, differs or missing; what was chosen, how it differs, or why it is missing
code                the class, function, option or constant that does it, as a dotted path, or a file
shown               the test, benchmark or page that shows it; empty if none does
told                the page that tells a difference elsewhere; empty if none does

    python -m scripts.as_published
"""

import ast
from collections import Counter
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/systems/as-published.md"
PAPERS = {
    "typed-rag": "Typed-RAG",
    "sub-question-coverage": "Sub-question coverage",
    "preqrag": "PreQRAG",
    "hanrag": "HANRAG",
    "richrag": "RichRAG",
}
VERDICTS = ("as published", "open", "differs", "missing")
_ABOUT = """# As published, item by item

Each row is an item of a paper: a step of an algorithm, a setting, a prompt, a metric, a dataset, a baseline or a
table. *As published* means with `--as-published`, or in the files of [`configs/papers`](../../configs/papers); else the
row says how typedrag differs. *Open* is what the paper does not say, with what typedrag does. *Shown by* names a test,
a benchmark or a page.

`python -m scripts.as_published` makes this page from `docs/systems/items`, and a test checks that all code
and tests that it names exist. Somebody else would divide the papers into other items, so the counts are no grade.
[Traces](traces.md) show each preset run for real.
"""


class Item(BaseModel):
    """An item of a paper, and what typedrag has of it."""

    model_config = ConfigDict(extra="forbid")

    id: str
    kind: Literal["algorithm", "setting", "prompt", "metric", "dataset", "baseline", "table"]
    where: str
    item: str
    verdict: Literal["as published", "open", "differs", "missing"]
    how: str
    code: str
    shown: str
    told: str


def read_items(paper: str) -> list[Item]:
    rows = yaml.safe_load((ROOT / f"docs/systems/items/{paper}.yaml").read_text())
    return [Item.model_validate(row) for row in rows]


def find_code(name: str) -> Path | None:
    """The file that defines a dotted path such as `typedrag.metrics.Linkage.rank`, or that a path names."""
    if "/" in name or "." not in name:
        path = ROOT / name.partition("::")[0]
        return path if path.exists() else None
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:end])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                return file if _defines(ast.parse(file.read_text()), parts[end:]) else None
    return None


def find_test(name: str) -> Path | None:
    """The file of a test `FILE::NAME`, or of a benchmark or page."""
    file, _, test = name.partition("::")
    path = ROOT / file
    if not path.is_file() or (test and not _defines(ast.parse(path.read_text()), test.partition("[")[0].split("::"))):
        return None
    return path


def _defines(tree: ast.Module, names: list[str]) -> bool:
    scope: ast.AST = tree
    for name in names:
        node = next((node for node in getattr(scope, "body", []) if name in _names(node)), None)
        if node is None:
            return False
        scope = node
    return True


def _names(node: ast.AST) -> list[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign():
            return [t.id for target in node.targets for t in ast.walk(target) if isinstance(t, ast.Name)]
        case ast.ImportFrom():
            return [alias.asname or alias.name for alias in node.names]
    return []


def render_page() -> str:
    items = {paper: read_items(paper) for paper in PAPERS}
    lines = [_ABOUT, f"| paper | items | {' | '.join(VERDICTS)} |", "|---|---|---|---|---|---|"]
    total: Counter[str] = Counter()
    for paper, rows in items.items():
        counts: Counter[str] = Counter(item.verdict for item in rows)
        total += counts
        lines.append(f"| [{PAPERS[paper]}](#{paper}) | {len(rows)} | {' | '.join(str(counts[v]) for v in VERDICTS)} |")
    lines.append(f"| all | {total.total()} | {' | '.join(str(total[v]) for v in VERDICTS)} |")
    for paper, rows in items.items():
        lines += ["", f"## {PAPERS[paper]}", ""]
        lines += ["| in the paper | item | verdict | code | shown by |", "|---|---|---|---|---|"]
        lines += [_row(item) for item in rows]
    return "\n".join(lines) + "\n"


def _row(item: Item) -> str:
    verdict = item.verdict if item.verdict == "as published" else f"**{item.verdict}**: {item.how}"
    evidence = _link(item.shown, find_test(item.shown), short=True) if item.shown else ""
    cells = (item.where, item.item, verdict, _link(item.code, find_code(item.code)) if item.code else "", evidence)
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def _link(name: str, path: Path | None, *, short: bool = False) -> str:
    if path is None:
        raise SystemExit(f"{name} does not exist")
    label = name.rpartition("::")[2] if short else name
    if "/" not in label:
        label = ".".join(label.split(".")[-2:])
    target = path.relative_to(ROOT).as_posix()
    target = target.removeprefix("docs/systems/") if target.startswith("docs/systems/") else f"../../{target}"
    return f"[`{label.rpartition('/')[2] or label}`]({target})"


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
