"""What the docs site does beyond mkdocs: its first page ends with the README's section on LLaDA-8B,
links out of docs/ become the names of the files, and the reference has all of each docstring.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from names import stubs

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

README = Path(__file__).parents[1] / "README.md"
HEADING = "## With LLaDA-8B\n"
ANCHOR = "#with-llada-8b"

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")
"""A link to a file of the repository that is not a page."""


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Return the page's text. On the site a link out of docs/ would lead nowhere."""
    if "/" in page.file.src_uri:
        return stubs(markdown)
    if page.file.src_uri == "index.md":
        markdown = f"{markdown.replace(f'../README.md{ANCHOR}', ANCHOR)}\n{llada()}"
    return LINK.sub(lambda link: f"{link[1]} (`{link[2]}` in the repository)", markdown)


def llada() -> str:
    """Return the README's section on LLaDA-8B, whose links lead to pages of docs/."""
    _, heading, rest = README.read_text(encoding="utf-8").partition(HEADING)
    return heading + rest.partition("\n## ")[0].replace("](docs/", "](")
