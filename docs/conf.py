"""Configuration of the site: `make docs` builds it from the pages of the whole repository, whose root is the source.

docs/README.md is the map: its sections are those of the sidebar, and the pages that they link to are their entries. The
pages below any other README.md are those that it links to in its own folder. A page that neither lists is an error.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

project = "Railwright"
html_title = project
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "node/**.md", "testdata/**/README.md"]
exclude_patterns = [".*", "dist", "examples", "out", "schema", "scripts", "src", "tests"]
nitpicky = True
highlight_language = "text"
myst_heading_anchors = 4

html_theme = "furo"
html_copy_source = False
html_search_scorer = str(Path(__file__).with_name("search.js"))
html_show_copyright = False
html_use_index = False
html_show_search_summary = False  # would be fetched, which pages opened as files cannot do

ROOT = Path(__file__).parents[1]
MAP = "docs/README"
LINK = re.compile(r"\]\(([^)#\s]+\.md)(?:#[^)\s]*)?\)")


def list_links(docname: str, text: str) -> list[str]:
    """Return the pages that a text of a page links to, in order, each once."""
    folder = (ROOT / docname).parent
    files = [(folder / target).resolve() for target in LINK.findall(text) if "://" not in target]
    return list(dict.fromkeys(file.relative_to(ROOT).with_suffix("").as_posix() for file in files))


def write_toctree(pages: list[str], caption: str = "") -> str:
    lines = [":hidden:", *([f":caption: {caption}"] if caption else []), "", *(f"/{page}" for page in pages)]
    return "\n".join(["", "```{toctree}", *lines, "```", ""]) if pages else ""


def plan_toctrees() -> dict[str, str]:
    """Return the tables of contents to append to each README: the map's to the root, the others' to themselves."""
    taken = {root_doc, MAP}
    found = {root_doc: write_toctree([MAP])}

    def take(pages: list[str]) -> list[str]:
        new = [page for page in pages if page not in taken]
        taken.update(new)
        return new

    for section in re.split(r"^## ", (ROOT / f"{MAP}.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        found[root_doc] += write_toctree(take(list_links(MAP, section)), section.partition("\n")[0])
    for file in sorted(ROOT.glob("[a-z]*/**/README.md"), key=lambda file: len(file.parts)):
        docname = file.relative_to(ROOT).with_suffix("").as_posix()
        below = [page for page in list_links(docname, file.read_text(encoding="utf-8")) if page.startswith(docname[:-6])]
        found[docname] = write_toctree(take(below))
    return found


def add_toctree(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] += app.config.toctrees.get(docname, "")


def name_folders(app: Sphinx, doctree: nodes.document) -> None:
    """Show links to folders of the repository as text, because the site has no such page."""
    folder = (ROOT / app.env.docname).parent
    for link in list(doctree.findall(addnodes.pending_xref)):
        if (folder / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def copy_front_page(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> ExtensionMetadata:
    app.add_config_value("toctrees", plan_toctrees(), "env", dict)
    app.connect("source-read", add_toctree)
    app.connect("doctree-read", name_folders)
    app.connect("build-finished", copy_front_page)
    return {"parallel_read_safe": True}
