"""Regular expressions that others write: RE2 matches them, whatever they are, in time that is
linear in the text, and in little memory.
"""

from __future__ import annotations

from typing import Any

import re2

MAX_BYTES = 2**15
"""Of a compiled expression: some 2,700 steps, each of which may be taken at every byte."""


def compiled(pattern: str) -> Any:
    r"""Return the expression as google-re2 has it, which searches bytes of UTF-8. \w, \d, \s and
    \b are about ASCII alone, $ is the very end, and what is no UTF-8 is matched by \C alone.
    Raises ValueError for what RE2 lacks, and for a larger one.
    """
    options = re2.Options()
    options.log_errors, options.max_mem = False, MAX_BYTES
    try:
        return re2.compile(pattern.encode(errors="surrogatepass"), options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise ValueError(
            f"RE2 cannot use the expression {pattern!r:.80}: {reason!r:.80}. It has no "
            "look-around, back-references, possessive repetition, (?x) or counts above 1,000: "
            "write it without."
        ) from error
