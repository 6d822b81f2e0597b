"""What a guest answers the requests of --input with, in place of the command's own way."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dise_core import LLM, Plan, RequestOutput
from dise_core.front.planner import Planner
from dise_core.params.base import Params
from dise_core.records import Fields, JsonFields

P = TypeVar("P", bound=Params)


@dataclass(frozen=True, slots=True)
class Work(Generic[P]):
    """What a verb does with each record of its input. Without a model, so that another process may
    have it: `load` loads one, `settings` tells what the answers depend on besides, as JSON.

    files: what the options for files say.
    """

    command: str
    files: Fields
    params: P
    load: Callable[[], LLM]
    plan_of: Callable[[Planner, JsonFields, P], Plan[RequestOutput]]
    settings: Callable[[LLM], JsonFields]


class FileRunner(Params):
    """A way to answer the requests of --input. Its fields, all with defaults, are options of the
    verbs that read files.
    """

    @abstractmethod
    def takes(self, files: Fields) -> bool:
        """Return whether this run is its own; files: --input, --output and all other options."""

    @abstractmethod
    def run(self, work: Work[P]) -> None:
        """Answer the requests. Raises DiseError, and typer.Exit(1) if some failed."""
