"""Configuration of the site: `make docs` builds it from the pages of the whole repository, whose root is the source.

docs/README.md is the map: its sections are those of the sidebar, and the pages that they link to are their entries. The
pages below any other README.md are those that it links to in its own folder. A page that neither lists is an error.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.typing import ExtensionMetadata

project = "Railwright"
html_title = project
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "node/**.md", "testdata/**/README.md", "testdata/external/unseen/*.md"]
exclude_patterns = [".*", "dist", "examples", "out", "schema", "scripts", "src", "tests"]
nitpicky = True
highlight_language = "text"
myst_heading_anchors = 4

html_theme = "furo"
html_copy_source = False
html_show_copyright = False
html_use_index = False
html_show_search_summary = False  # would be fetched, which pages opened as files cannot do

MAP = "docs/README"
SCORER = Path(__file__).with_name("search.js")
PURPOSE = re.compile(r"^For: (.+?)\.?$", re.MULTILINE)
MARKUP = re.compile(r"[`*]|\[([^]]*)\]\([^)]*\)")
LINK = re.compile(r"\]\(([^)#\s]+\.md)(?:#[^)\s]*)?\)")


def list_links(folder: Path, text: str, root: Path) -> list[str]:
    """Return the pages that a text links to, in order, each once."""
    files = [(folder / target).resolve() for target in LINK.findall(text) if "://" not in target]
    return list(dict.fromkeys(file.relative_to(root).with_suffix("").as_posix() for file in files))


def write_toctree(pages: list[str], caption: str = "") -> str:
    """Return a directive that adds pages to the sidebar; none without pages."""
    lines = [":hidden:", *([f":caption: {caption}"] if caption else []), "", *(f"/{page}" for page in pages)]
    return "\n".join(["", "```{toctree}", *lines, "```", ""]) if pages else ""


def plan_toctrees(root: Path) -> dict[str, str]:
    """Return the tables of contents to append to each README: the map's to the root's, the others' to themselves."""
    taken = {root_doc, MAP}
    found = {root_doc: write_toctree([MAP])}

    def take(pages: list[str]) -> list[str]:
        new = [page for page in pages if page not in taken]
        taken.update(new)
        return new

    page = root / f"{MAP}.md"
    for section in re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        links = list_links(page.parent, section, root)
        found[root_doc] += write_toctree(take(links), section.partition("\n")[0])
    for file in sorted(root.glob("[a-z]*/**/README.md"), key=lambda file: len(file.parts)):
        folder = file.parent.relative_to(root).as_posix()
        below = list_links(file.parent, file.read_text(encoding="utf-8"), root)
        found[f"{folder}/README"] = write_toctree(take([page for page in below if page.startswith(f"{folder}/")]))
    return found


def name_folders(app: Sphinx, doctree: nodes.document) -> None:
    """Show links to folders of the repository as text, because the site has no such page."""
    folder = Path(app.srcdir, app.env.docname).parent
    for link in list(doctree.findall(addnodes.pending_xref)):
        if (folder / link["reftarget"]).is_dir():
            link.replace_self(link.children)


def write_scorer(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Give the search the readers of each page, to show them with its results."""
    purposes = {}
    for page in sorted(env.found_docs):
        if found := PURPOSE.search(Path(app.srcdir, f"{page}.md").read_text(encoding="utf-8")):
            purposes[page] = MARKUP.sub(r"\1", found[1])
    scorer = Path(app.doctreedir, SCORER.name)
    scorer.write_text(
        f"const PURPOSES = {json.dumps(purposes)};\n{SCORER.read_text(encoding='utf-8')}", encoding="utf-8"
    )
    app.config.html_search_scorer = str(scorer)
    return []


def copy_front_page(app: Sphinx, error: Exception | None) -> None:
    """Give the README the name that browsers and servers open first."""
    if error is None:
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Plan the sidebar, and connect what this module does to a build."""
    toctrees = plan_toctrees(Path(app.srcdir))

    def add_toctree(_: Sphinx, docname: str, source: list[str]) -> None:
        source[0] += toctrees.get(docname, "")

    app.connect("source-read", add_toctree)
    app.connect("doctree-read", name_folders)
    app.connect("env-updated", write_scorer)
    app.connect("build-finished", copy_front_page)
    return {"parallel_read_safe": True}
