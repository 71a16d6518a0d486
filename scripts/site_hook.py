"""A hook of MkDocs that adds to `mkdocs.yml` generated pages, links out of `docs/`, and `llms.txt`."""

import json
import posixpath
import re
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page
from site_reference import reference_pages

ROOT = Path(__file__).parents[1]
PAGES = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "benchmarks.md": "benchmarks/README.md",
}
"""Pages of the site that lie outside `docs/`, with their files."""
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".jsonl": "json"}
_navigation: list[Navigation] = []


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the references, notebooks, pages outside `docs/`, and the files of the repository that pages link to."""
    pages = reference_pages() | {place: (ROOT / path).read_text("utf-8") for place, path in PAGES.items()}
    for file in files:
        if file.src_uri.endswith(".ipynb"):
            pages[file.src_uri.replace(".ipynb", ".md")] = notebook_page(file.content_string)
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    for page in list(files.documentation_pages()):
        for path in (_repository_path(link, page.src_uri) for link in _LINK.findall(page.content_string)):
            place = _place(path)
            if place.startswith("source/") and (ROOT / path).exists() and place not in files.src_uris:
                outside_nav = InclusionLevel.NOT_IN_NAV
                files.append(File.generated(config, place, content=source_page(path), inclusion=outside_nav))
    config.nav = _expanded(
        config.nav, sorted(files.src_uris, key=lambda place: PurePosixPath(place).with_suffix("").parts)
    )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files of the repository lead to their pages, and Markdown in folded parts be read as such."""
    lies = page.file.src_uri

    def site_link(link: re.Match[str]) -> str:
        place = _place(_repository_path(link[1], lies))
        return f"]({posixpath.relpath(place, posixpath.dirname(lies))}"

    if not lies.startswith(("source/", "reference/")):
        markdown = _LINK.sub(site_link, markdown)
    return markdown.replace("<details>", "<details markdown>")


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    """Keep the navigation for `llms.txt`."""
    _navigation[:] = [nav]


def on_post_build(config: MkDocsConfig) -> None:
    """Write `llms.txt`: each page of the navigation with its first sentence."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for item in _navigation[0].items:
        lines += ["", f"## {item.title}", ""]
        lines += [f"- [{page.title}]({page.url}){_summary(page.markdown or '')}" for page in _pages(item)]
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")


def notebook_page(text: str) -> str:
    """A notebook as Markdown: its cells, and what they have put out."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f"![output](data:image/png;base64,{''.join(data['image/png']).strip()})")
            elif text := "".join(output.get("text") or data.get("text/plain") or ()):
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join([*parts, ""])


def source_page(path: str) -> str:
    """The page of a file of the repository, or of all Python files of a folder."""
    files = sorted((ROOT / path).glob("*.py")) if (ROOT / path).is_dir() else [ROOT / path]
    parts = [f"---\nsearch:\n  exclude: true\n---\n\n# {path}"]
    for file in files:
        title = f"## {file.name}\n\n" if len(files) > 1 else ""
        parts.append(f"{title}``````{_LANGUAGES.get(file.suffix, 'text')}\n{file.read_text('utf-8')}\n``````")
    return "\n\n".join([*parts, ""])


def _pages(item: Any) -> list[Page]:
    return [page for child in item.children for page in _pages(child)] if isinstance(item, Section) else [item]


def _summary(markdown: str) -> str:
    blocks = (block.strip() for block in re.split(r"\n{2,}", markdown))
    text = next((re.sub(r"\s+", " ", block) for block in blocks if re.match(r"(?!```)[\w*`\[\"]", block)), "")
    sentence = re.split(r"(?<=[.?!]) ", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text))[0]
    return f": {sentence}" if sentence else ""


def _expanded(entry: Any, places: list[str]) -> Any:
    """A part of the navigation with all pages that match in the place of a pattern; None where nothing does."""
    if isinstance(entry, dict):
        inner = {title: _expanded(part, places) for title, part in entry.items()}
        return {title: part for title, part in inner.items() if part}
    if isinstance(entry, list):
        parts = [_expanded(part, places) for part in entry]
        return [page for part in parts if part for page in (part if isinstance(part, list) else [part])]
    return [p for p in places if fnmatch(p, entry) and p.endswith(".md")] if "*" in entry else entry


def _repository_path(target: str, page: str) -> str:
    """The file that a link of a page leads to, from the root of the repository."""
    lies = PAGES.get(page, f"docs/{page}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(lies), target))


def _place(path: str) -> str:
    """The place of a file of the repository in the site."""
    places = {"README.md": "index.md", **{path: place for place, path in PAGES.items()}}
    return places.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}.md")
