"""Workers for Ray Data: columns in, columns out, and errors in a column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Unpack

from dise_app.cli.answer import text_or_ids
from dise_app.files.runner import Answered, P
from dise_app.terminal.progress import in_order
from dise_cluster.answers import columns_of, row_seed, to_json, with_columns
from dise_core import LLM, InputError, Plan, SamplingParams, ScoringParams
from dise_core.front.llm import EngineOptions
from dise_core.records import JsonFields, Record
from dise_decide.calibration import DecisionCalibration
from dise_decide.deciding import decision
from dise_decide.llm import CalibrationLike
from dise_decide.params import DecisionParams
from dise_decide.questions import Question, check_questions

if TYPE_CHECKING:
    import numpy as np
    import pyarrow
    from numpy.typing import NDArray
    from ray.data import Dataset

__all__ = ["DiseDecider", "DiseGenerator", "DiseScorer", "dise_processor"]

RowMap = Callable[[Record], Record] | None


class Worker(ABC, Generic[P]):
    """A class for `ray.data.Dataset.map_batches`, whose instances answer the rows of a
    batch.

    A row that cannot be answered has the reason in its column `dise_error`; one that has
    a reason there already keeps it. Columns dise_... have the same Arrow types in every
    batch; log probabilities of tokens are there where the params set `logprobs`.
    """

    def __init__(self, model: str, params: P, **options: Unpack[EngineOptions]) -> None:
        """Load the model with LLM's options. Raises InputError for wrong ones."""
        if "logprobs" in type(params).model_fields.keys() - params.model_fields_set:
            params = params.model_copy(update={"logprobs": None})
        self._params, self._llm = params, LLM(model, **options)
        self._llm.catalog.check(params)

    def __call__(self, batch: pyarrow.Table | Mapping[str, NDArray[np.generic]]) -> pyarrow.Table:
        """Return the batch, a table or columns, with the answers' columns added."""
        import pyarrow

        table = batch if isinstance(batch, pyarrow.Table) else pyarrow.table(dict(batch))
        columns = self.columns(table.to_pylist())
        earlier = [name for name in table.column_names if name in columns]
        return with_columns(table.drop_columns(earlier), columns)

    def columns(self, rows: Sequence[JsonFields]) -> dict[str, pyarrow.Array]:
        """Return the columns of the rows' answers."""
        outcomes = in_order(self._llm, rows, self._checked, lambda _: None)
        return columns_of([to_json(outcome) for _, outcome in outcomes], self._params)

    def _checked(self, row: JsonFields) -> Plan[Answered]:
        if row.get("dise_error") is not None:
            raise InputError(str(row["dise_error"]))
        return (yield from self._plan(row))

    @abstractmethod
    def _plan(self, row: JsonFields) -> Plan[Answered]:
        """Return the plan of a row's answer."""


class DiseScorer(Worker[ScoringParams]):
    """Scores column `response` (or `response_ids`) given `prompt` (`prompt_ids`)."""

    def __init__(
        self,
        model: str = "countdown",
        params: ScoringParams | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        super().__init__(model, params or ScoringParams(), **options)

    def _plan(self, row: JsonFields) -> Plan[Answered]:
        prompt, response = text_or_ids(row, "prompt", ""), text_or_ids(row, "response")
        return self._llm.planner.score(prompt, response, self._params)


class DiseGenerator(Worker[SamplingParams]):
    """Answers the column `prompt` (or `prompt_ids`). Each row has a seed of its own, of
    the params' seed, which must be set, and its `id`: so answers do not depend on batches
    or workers.
    """

    def __init__(
        self, model: str, params: SamplingParams, **options: Unpack[EngineOptions]
    ) -> None:
        if params.seed is None:
            raise InputError("a generator needs a seed, from which each row has its own", "seed")
        super().__init__(model, params, **options)

    def _plan(self, row: JsonFields) -> Plan[Answered]:
        if row.get("id") is None:
            raise InputError('needs an "id", of which its seed is made', "id")
        seed = row_seed(self._params.seed or 0, row["id"])
        params = self._params.model_copy(update={"seed": seed})
        return self._llm.planner.generate(text_or_ids(row, "prompt"), params)


class DiseDecider(Worker[DecisionParams]):
    """Answers typed questions about the column `input`, a text."""

    def __init__(
        self,
        model: str,
        questions: Sequence[Question],
        params: DecisionParams | None = None,
        decision_calibration: CalibrationLike = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        self._questions = check_questions(questions)
        self._calibration = DecisionCalibration.of(decision_calibration)
        super().__init__(model, params or DecisionParams(), **options)
        if self._calibration is not None:
            self._calibration.check_model(self._llm.predictor)
            self._calibration.applied(self._params)

    def _plan(self, row: JsonFields) -> Plan[Answered]:
        if not isinstance(text := row.get("input"), str):
            raise InputError('needs "input", a text', "input")
        planner, calibration = self._llm.planner, self._calibration
        return decision(planner, text, self._questions, self._params, None, calibration)


def dise_processor(
    worker: type[DiseScorer | DiseGenerator | DiseDecider],
    preprocess: RowMap = None,
    postprocess: RowMap = None,
    *,
    batch_size: int = 512,
    concurrency: int = 1,
    num_cpus: float = 1,
    num_gpus: float = 0,
    **arguments: object,
) -> Callable[[Dataset], Dataset]:
    """Return a function of a dataset, in the form of `ray.data.llm.build_processor`: each
    row is mapped by `preprocess`, answered by a worker made with the arguments, mapped by
    `postprocess`.

    batch_size: rows that are lost with a worker; concurrency: workers, each with these
    CPUs and GPUs. A worker that dies is started again twice, and then ends the job. The
    function raises InputError where the workers leave less than a core of those that Ray
    has.
    """
    from ray.data import ActorPoolStrategy

    def process(dataset: Dataset) -> Dataset:
        _check_cores(concurrency, num_cpus)
        rows = dataset if preprocess is None else dataset.map(preprocess)
        answered = rows.map_batches(
            worker,
            fn_constructor_kwargs=arguments,
            compute=ActorPoolStrategy(size=concurrency),
            batch_size=batch_size,
            batch_format="pyarrow",
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            udf_modifying_row_count=False,
            max_restarts=2,
            max_task_retries=2,
        )
        return answered if postprocess is None else answered.map(postprocess)

    return process


def _check_cores(concurrency: int, num_cpus: float) -> None:
    """Raise InputError unless Ray's own steps have a core, or they wait forever."""
    import ray

    num_cores = ray.cluster_resources().get("CPU", 0)
    num_free = max(num_cores - concurrency * num_cpus, 0)
    if num_free < 1:
        raise InputError(
            f"concurrency={concurrency} and num_cpus={num_cpus:g} leave {num_free:g} of the "
            f"{num_cores:g} cores that Ray has, and reading and writing need one: "
            "take fewer workers, or a smaller num_cpus",
            "concurrency",
        )
