"""How a guest answers the requests of --input, in place of the command's own way."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from dise_core import LLM, Plan, RequestOutput
from dise_core.front.planner import Planner
from dise_core.params.base import Params
from dise_core.records import Fields, JsonFields, Record

P = TypeVar("P", bound=Params)

AnswerPlan = Plan[RequestOutput]


class Answered(Protocol):
    """An answer with a JSON form."""

    def to_dict(self) -> Record: ...


@dataclass(frozen=True, slots=True)
class Work(Generic[P]):
    """What a verb does with each record, without a model, so that another process may do
    it: `load` loads one. files: what FILES say. settings: what answers depend on besides,
    as JSON. usual: the defaults of options among them.
    """

    command: str
    files: Fields
    params: P
    load: Callable[[], LLM]
    plan_of: Callable[[Planner, JsonFields, P], Plan[Answered]]
    settings: Callable[[LLM], JsonFields]
    usual: JsonFields


class FileRunner(Params):
    """A way to answer requests. Its fields, all with defaults, are options of verbs with FILES."""

    @abstractmethod
    def takes(self, files: Fields) -> bool:
        """Return whether this run, with these files and options, is its own."""

    @abstractmethod
    def run(self, work: Work[P]) -> None:
        """Answer the requests. Raises DiseError, and typer.Exit(1) if some failed."""
