"""DiSE: how sure is a diffusion language model of a text? What its users need, in one import.

Every name is that of dise_core, which has those for plugin authors too; docs/python.md lists all.
"""

import sys
from importlib.metadata import version

if sys.orig_argv[1:3] == ["-m", "dise"]:  # Ctrl-C ends the command while this is imported, too
    from dise_app.cli.interrupts import end_at_once

    end_at_once()

from dise_core import users
from dise_core.users import *  # noqa: F403

__version__ = version("dise")

__all__ = ["__version__"]
__all__ += users.__all__
