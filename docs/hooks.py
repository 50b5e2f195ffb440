"""What the site has besides the pages in docs/: README and its kin, lists of pages, the reference.

MkDocs calls these functions by their names.
"""

import importlib
import inspect
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parent.parent
_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
}
_LISTS = {
    "formats": "One page for each file on disk, with bytes that a test compares with the code.",
    "decisions": "What was decided, why, and what it costs.",
    "tutorials": "Each of them is run by a test.",
}
# What a program imports; whatever is in `__all__` of these is public.
PUBLIC = (
    "holdfast",
    "holdfast.logs.log",
    "holdfast.logs.shanghai",
    "holdfast.logs.raft_wal",
    "holdfast.logs.file_log",
    "holdfast.logs.replicas",
    "holdfast.kv",
    "holdfast.kv.cas",
    "holdfast.bars",
    "holdfast.bucket",
    "holdfast.spark",
    "holdfast.spark.jobs",
    "holdfast.integrations.pysyncobj",
    "holdfast.testing",
    "holdfast.errors",
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Directories in the navigation become their pages."""
    config.nav = [_expand(item) for item in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, name in _PAGES.items():
        text = (_ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_relinked(text)))
    for directory, about in _LISTS.items():
        lines = [f"# {directory.capitalize()}", "", about, ""]
        lines += [f"- [{_title(_ROOT / 'docs' / p)}]({Path(p).name})" for p in _pages_in(directory)]
        content = "\n".join(lines) + "\n"
        files.append(File.generated(config, f"{directory}/index.md", content=content))
    for name in PUBLIC:
        files.append(File.generated(config, _reference(name), content=_reference_page(name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Where the text names another page, it is a link."""
    here = posixpath.dirname(page.file.src_uri)

    def link(found: re.Match[str]) -> str:
        return f"[{found[0]}]({posixpath.relpath(found[1], here or '.')})"

    return re.sub(r"(?<![\w/(\[`<])docs/([\w/-]+\.md)", link, markdown)


def _expand(item: Any) -> Any:
    if isinstance(item, str):
        return item
    ((title, value),) = item.items()
    if isinstance(value, list):
        return {title: [_expand(one) for one in value]}
    if value == "reference/":
        return {title: [{name: _reference(name)} for name in PUBLIC]}
    if value.endswith("/"):
        return {title: [f"{value}index.md", *_pages_in(value.rstrip("/"))]}
    return item


def _pages_in(directory: str) -> list[str]:
    found = sorted((_ROOT / "docs" / directory).glob("*.md"))
    return [f"{directory}/{path.name}" for path in found]


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")


def _relinked(text: str) -> str:
    """Links as they are from inside docs/."""
    for source, name in _PAGES.items():
        text = text.replace(f"]({source}", f"]({name}")
    text = re.sub(r"\]\(docs/(\w+)/\)", r"](\1/index.md)", text)
    return text.replace("](docs/", "](")


def _reference(name: str) -> str:
    return f"reference/{name}.md"


def _exports(name: str) -> dict[str, Any]:
    """Return what a public module exports, by name: classes and functions."""
    module = importlib.import_module(name)
    names = getattr(module, "__all__", None) or [
        key for key, value in vars(module).items() if getattr(value, "__module__", "") == name
    ]
    values = {one: getattr(module, one) for one in names if not one.startswith("_")}
    return {one: value for one, value in values.items() if callable(value)}


def _reference_page(name: str) -> str:
    """Return the docstring of a package, and of all that it exports, from where that is defined.

    What several packages export is documented on the page of the last of them; the other pages
    link to it, because an identifier may have one page only.
    """
    later = {
        id(value)
        for other in PUBLIC[PUBLIC.index(name) + 1 :]
        for value in _exports(other).values()
    }
    links, parts = [], []
    for one, value in _exports(name).items():
        target = f"{value.__module__}.{value.__qualname__}"
        if id(value) in later:
            links.append(f"- [`{one}`][{target}]")
        else:
            parts.append(f"::: {target}\n")
    docstring = inspect.getdoc(importlib.import_module(name))
    listed = ["\n".join(links) + "\n"] if links else []
    return "\n".join([f"# {name}\n\n{docstring}\n", *listed, *parts])
