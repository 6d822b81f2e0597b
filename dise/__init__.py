"""DiSE: how sure is a diffusion language model of a text? What its users need, in one
import.

Its names are those of dise_core, which has more for plugin authors, and of dise_decide;
docs/reference lists all.
"""

import dise_app  # isort: skip  # noqa: F401  # first: from here on Ctrl-C ends `python -m dise`

from importlib.metadata import version

import dise_decide
from dise_core import users
from dise_core.users import *  # noqa: F403
from dise_decide import *  # noqa: F403
from dise_decide.llm import AsyncDecidingLLM as AsyncLLM
from dise_decide.llm import DecidingLLM as LLM  # noqa: N814

__version__ = version("dise")

__all__ = ["AsyncLLM", "LLM", "__version__"]
__all__ += users.__all__
__all__ += dise_decide.__all__
