"""What the site needs besides the pages: the protocol as a page, one for each class, and links that leave this folder.

In the repository a link such as `../proto/README.md` leads to a file. Where that file is a page of the site, the link goes
there; other files of the repository are named, without a link.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"README.md": "index.md", "proto/README.md": "protocol.md", "python/README.md": "api.md"}
"""Files outside of docs/, and the pages that hold what they say."""

# A chapter of api.md, which becomes a page of its own: what it describes, and with which options.
_CHAPTER = re.compile(r"^::: (\S+)((?:\n    .*)*)$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the specification of the protocol, which lies beside its test messages, and a page for each class."""
    text = (ROOT / "proto" / "README.md").read_text()
    files.append(File.generated(config, "protocol.md", content=text))
    for name, options in _CHAPTER.findall((ROOT / "docs" / "api.md").read_text()):
        files.append(File.generated(config, f"api/{name}.md", content=f"# {name}\n\n::: {name}{options}\n"))
    return files


def _first_lines(markdown: str) -> str:
    """The list of the pages of classes in the place of the chapters, with what each says first."""
    package = griffe.load("criticd", search_paths=[ROOT / "python"], submodules=True)

    def entry(chapter: re.Match[str]) -> str:
        said = package[chapter[1].removeprefix("criticd.")].docstring
        return f"- [`{chapter[1]}`](api/{chapter[1]}.md): {said.value.splitlines()[0]}"

    listed = re.sub(r"(?<=\.md\)): .*\n\n(?=- \[)", lambda gap: gap[0][:-1], _CHAPTER.sub(entry, markdown))
    return re.sub(r"\(#(criticd\.\w+)\)", r"(api/\1.md)", listed)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links into the site."""
    if page.file.src_uri == "api.md":
        markdown = _first_lines(markdown)
    source = "proto/README.md" if page.file.src_uri == "protocol.md" else f"docs/{page.file.src_uri}"

    def mended(link: re.Match[str]) -> str:
        picture, text, target = link.groups()
        path, mark, anchor = target.partition("#")
        if picture or not path or "://" in target:
            return link[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if place in PAGES:
            uri = PAGES[place]
        elif place.startswith("docs/"):
            uri = place.removeprefix("docs/")
        elif (ROOT / place).exists():
            return text
        else:
            raise PluginError(f"{source}: {target} does not exist")
        # The page of the package has other headings than its README.
        anchor = "" if uri in ("index.md", "api.md") else mark + anchor
        return f"[{text}]({posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"

    return _LINK.sub(mended, markdown)
