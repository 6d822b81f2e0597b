"""Workers for pipelines of Ray Data: columns in, columns out, and an error is a column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, Literal, Unpack

from pydantic import Field

from dise_app.cli.answer import text_or_ids
from dise_app.files.runner import P
from dise_app.terminal.progress import in_order
from dise_cluster.answers import check_names, row_seed, told
from dise_cluster.columns import columns_of, with_columns
from dise_cluster.on_ray import RESTARTS
from dise_core import LLM, InputError, Plan, RequestOutput, SamplingParams, ScoringParams
from dise_core.front.llm import EngineOptions
from dise_core.params.base import Params
from dise_core.records import JsonFields, Record

if TYPE_CHECKING:
    import numpy as np
    import pyarrow
    from numpy.typing import NDArray
    from ray.data import Dataset

Rows = Callable[[Record], Record] | None


class Worker(ABC, Generic[P]):
    """A class for `ray.data.Dataset.map_batches`, whose instances answer the rows of a batch.

    A row that cannot be answered has the reason in its column `dise_error`; one that has a reason
    there already keeps it. Columns dise_... have the same Arrow types in every batch; log
    probabilities of tokens are there where the params set `logprobs`.
    """

    def __init__(self, model: str, params: P, **options: Unpack[EngineOptions]) -> None:
        """Load the model; options: see LLM. Raises InputError for wrong params or options."""
        is_asked = "logprobs" in params.model_fields_set
        self._params = params if is_asked else params.model_copy(update={"logprobs": None})
        self._llm = LLM(model, **options)
        check_names(self._llm, self._params)

    def __call__(self, batch: pyarrow.Table | Mapping[str, NDArray[np.generic]]) -> pyarrow.Table:
        """Return the batch, a table or columns, with the answers' columns behind its own."""
        import pyarrow

        table = batch if isinstance(batch, pyarrow.Table) else pyarrow.table(dict(batch))
        outcomes = in_order(self._llm, table.to_pylist(), self._checked, lambda _: None)
        columns = columns_of([told(outcome) for _, outcome in outcomes])
        earlier = [name for name in table.column_names if name in columns]
        return with_columns(table.drop_columns(earlier), columns)

    def _checked(self, row: JsonFields) -> Plan[RequestOutput]:
        if row.get("dise_error") is not None:
            raise InputError(str(row["dise_error"]))
        return (yield from self._plan(row))

    @abstractmethod
    def _plan(self, row: JsonFields) -> Plan[RequestOutput]:
        """Return the plan of a row's answer."""


class DiseScorer(Worker[ScoringParams]):
    """Scores the column `response` (or `response_ids`) given `prompt` (`prompt_ids`), if any."""

    def __init__(
        self,
        model: str = "countdown",
        params: ScoringParams | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        super().__init__(model, params or ScoringParams(), **options)

    def _plan(self, row: JsonFields) -> Plan[RequestOutput]:
        prompt, response = text_or_ids(row, "prompt", ""), text_or_ids(row, "response")
        return self._llm.planner.score(prompt, response, self._params)


class DiseGenerator(Worker[SamplingParams]):
    """Answers the column `prompt` (or `prompt_ids`). Each row has a seed of its own, of the params'
    seed, which must be set, and its `id`: so answers do not depend on batches or workers.
    """

    def __init__(
        self, model: str, params: SamplingParams, **options: Unpack[EngineOptions]
    ) -> None:
        if params.seed is None:
            raise InputError("a generator needs a seed, from which each row has its own", "seed")
        super().__init__(model, params, **options)

    def _plan(self, row: JsonFields) -> Plan[RequestOutput]:
        if row.get("id") is None:
            raise InputError('needs an "id", of which its seed is made', "id")
        seed = row_seed(self._params.seed or 0, row["id"])
        params = self._params.model_copy(update={"seed": seed})
        return self._llm.planner.generate(text_or_ids(row, "prompt"), params)


class DiseProcessorConfig(Params):
    """What `dise_processor` runs, and on what."""

    task: Literal["score", "generate"] = "score"
    """What is done with each row, by DiseScorer or DiseGenerator."""
    model: str = "countdown"
    """A model's name, a local folder or a hub id."""
    params: SamplingParams | ScoringParams | None = None
    """How rows are answered."""
    engine: Record = Field(default_factory=dict)
    """Options of LLM, by name."""
    batch_size: int = Field(default=512, ge=1)
    """Rows in memory at a time, and lost with a worker; the engine batches them by tokens."""
    concurrency: int = Field(default=1, ge=1)
    """Workers."""
    num_cpus: float = Field(default=1, gt=0)
    """CPU cores for each worker."""
    num_gpus: float = Field(default=0, ge=0)
    """GPUs for each worker."""


def dise_processor(
    config: DiseProcessorConfig, preprocess: Rows = None, postprocess: Rows = None
) -> Callable[[Dataset], Dataset]:
    """Return a function of a dataset, as `ray.data.llm.build_processor` does: it maps each row by
    `preprocess`, answers it, and maps it by `postprocess`. A worker that dies is started again
    twice, and then ends the job.
    """
    from ray.data import ActorPoolStrategy

    worker = DiseScorer if config.task == "score" else DiseGenerator
    params = {} if config.params is None else {"params": config.params}

    def process(dataset: Dataset) -> Dataset:
        given = dataset if preprocess is None else dataset.map(preprocess)
        answered = given.map_batches(
            worker,
            fn_constructor_kwargs={"model": config.model, **params, **config.engine},
            compute=ActorPoolStrategy(size=config.concurrency),
            batch_size=config.batch_size,
            batch_format="pyarrow",
            num_cpus=config.num_cpus,
            num_gpus=config.num_gpus,
            udf_modifying_row_count=False,
            **RESTARTS,
        )
        return answered if postprocess is None else answered.map(postprocess)

    return process
