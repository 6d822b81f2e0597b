"""The kinds of what plugins register; hooks, catalog, listings and pages derive from them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from dise_core.constraints.constraint import Constraint
from dise_core.models.backend import Backend
from dise_core.models.predictor import MaskPredictor
from dise_core.params.base import Params
from dise_core.scoring.scorer import Scorer, Selector
from dise_core.writing.length import LengthController
from dise_core.writing.logits import LogitsProcessor
from dise_core.writing.policy import UnmaskingPolicy
from dise_core.writing.reviser import Reviser

C = TypeVar("C")


@dataclass(frozen=True)
class Kind(Generic[C]):
    """One kind, whose hook returns a mapping from names to values. option: the option
    that takes its names. base: the base of the values, which are classes; object for any
    values, or for the "module:name" of each, which is imported when it is asked for.
    several: what more than one are called, if not by the title's plural.
    """

    option: str
    title: str
    base: type[C]
    several: str = ""

    @cached_property
    def plural(self) -> str:
        """The attribute of Catalog."""
        name = self.title.replace(" ", "_")
        return self.several or (f"{name[:-1]}ies" if name.endswith("y") else f"{name}s")

    @property
    def hook(self) -> str:
        return f"dise_{self.plural}"

    @property
    def holds_classes(self) -> bool:
        return self.base is not object


SCORER = Kind("scorer", "scorer", Scorer)
SELECTOR = Kind("selector", "selector", Selector)
UNMASKING = Kind("unmasking", "unmasking policy", UnmaskingPolicy)
LENGTH = Kind("length", "length controller", LengthController)
REVISER = Kind("reviser", "reviser", Reviser)
CONSTRAINT = Kind("constraint", "constraint", Constraint)
LOGITS = Kind("logits", "logits processor", LogitsProcessor, "logits")
ADAPTER = Kind("adapter", "mask predictor", MaskPredictor)
ENGINE: Kind[Backend[Any]] = Kind("engine", "engine", Backend)
DATASET = Kind("dataset", "dataset", object)
COMMAND = Kind("", "command", object)
"""Verbs of the command: functions or apps as typer takes them."""
ROUTES = Kind("", "route", object)
"""Functions of a FastAPI router, to which they add routes, and of the server's Service."""
ROUTE_OPTIONS = Kind("", "route option", Params)
"""Classes whose fields are options of `dise serve`, which routes get from `Service.options`."""
FILE_RUNNER = Kind("", "file runner", Params)
"""Ways to answer the requests of --input, each a FileRunner of dise_app."""

STRATEGIES: tuple[Kind[Any], ...] = (
    SCORER, SELECTOR, UNMASKING, LENGTH, REVISER, CONSTRAINT, LOGITS
)  # fmt: skip
KINDS: tuple[Kind[Any], ...] = (
    *STRATEGIES, ADAPTER, ENGINE, DATASET, COMMAND, ROUTES, ROUTE_OPTIONS, FILE_RUNNER
)  # fmt: skip
LATE = (*STRATEGIES, ADAPTER)
"""Kinds of which a "module:name" is imported when it is used."""
BY_PLURAL = {kind.plural: kind for kind in KINDS}


def kinds_named_by(params: type[BaseModel]) -> list[Kind[Any]]:
    """Return the kinds that these params choose by name."""
    return [kind for kind in KINDS if kind.option in params.model_fields]
