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
from dise_core.writing.policy import UnmaskingPolicy
from dise_core.writing.reviser import Reviser

C = TypeVar("C")


@dataclass(frozen=True)
class Kind(Generic[C]):
    """One kind. hook: the function of a plugin that returns its values by name, specified
    in hookspecs.py. option: the option that takes its names. base: the base of the values,
    which are classes; object for any values, or for the "module:name" of each, which is
    imported when it is asked for.
    """

    hook: str
    option: str
    title: str
    base: type[C]

    @cached_property
    def plural(self) -> str:
        """The attribute of Catalog."""
        return self.hook.removeprefix("dise_")

    @property
    def holds_classes(self) -> bool:
        return self.base is not object


SCORER = Kind("dise_scorers", "scorer", "scorer", Scorer)
SELECTOR = Kind("dise_selectors", "selector", "selector", Selector)
UNMASKING = Kind("dise_unmasking_policies", "unmasking", "unmasking policy", UnmaskingPolicy)
LENGTH = Kind("dise_length_controllers", "length", "length controller", LengthController)
REVISER = Kind("dise_revisers", "reviser", "reviser", Reviser)
CONSTRAINT = Kind("dise_constraints", "constraint", "constraint", Constraint)
ADAPTER = Kind("dise_mask_predictors", "adapter", "mask predictor", MaskPredictor)
ENGINE: Kind[Backend[Any]] = Kind("dise_engines", "engine", "engine", Backend)
DATASET = Kind("dise_datasets", "dataset", "dataset", object)
COMMAND = Kind("dise_commands", "", "command", object)
ROUTES = Kind("dise_routes", "", "route", object)
ROUTE_OPTIONS = Kind("dise_route_options", "", "route option", Params)
FILE_RUNNER = Kind("dise_file_runners", "", "file runner", Params)

STRATEGIES: tuple[Kind[Any], ...] = (SCORER, SELECTOR, UNMASKING, LENGTH, REVISER, CONSTRAINT)
KINDS: tuple[Kind[Any], ...] = (
    *STRATEGIES, ADAPTER, ENGINE, DATASET, COMMAND, ROUTES, ROUTE_OPTIONS, FILE_RUNNER
)  # fmt: skip
LATE = (*STRATEGIES, ADAPTER)
"""Kinds of which a "module:name" is imported when it is used."""
BY_PLURAL = {kind.plural: kind for kind in KINDS}


def kinds_named_by(params: type[BaseModel]) -> list[Kind[Any]]:
    """Return the kinds that these params choose by name."""
    return [kind for kind in KINDS if kind.option in params.model_fields]
