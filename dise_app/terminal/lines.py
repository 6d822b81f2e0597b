"""Lines for a terminal, which break between words alone."""

import shutil
import sys
import textwrap


def folded(text: str, indent: str = "") -> str:
    """Return a paragraph in the terminal's width; no word and no number is broken. indent:
    that of all lines but the first.
    """
    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def tell(sentence: str) -> None:
    """Print a sentence to standard error: folded on a terminal, elsewhere one line."""
    line = f"dise: {sentence}"
    print(folded(line) if sys.stderr.isatty() else line, file=sys.stderr)
