"""What the docs site does beyond mkdocs: links out of docs/ become the names of the files."""

from __future__ import annotations

import re

from mkdocs.structure.pages import Page

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(\.\./([^)#]+)(?:#[^)]*)?\)")
"""A link to a file of the repository that is not a page."""


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Return the page's text. On the site a link out of docs/ would lead nowhere."""
    if "/" in page.file.src_uri:
        return markdown
    return LINK.sub(lambda link: f"{link[1]} (`{link[2]}` in the repository)", markdown)
