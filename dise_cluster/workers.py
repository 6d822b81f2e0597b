"""Workers for Ray Data's `map_batches`: columns in, columns out, and errors in a column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Unpack

from dise_app.cli.answer import text_or_ids
from dise_app.files.runner import Answered, P
from dise_app.terminal.progress import in_order
from dise_cluster.columns import columns_of, seeded, to_json, with_columns
from dise_core import LLM, InputError, Plan, SamplingParams, ScoringParams
from dise_core.front.llm import EngineOptions
from dise_core.records import JsonFields
from dise_decide.calibration import DecisionCalibration
from dise_decide.deciding import decision
from dise_decide.llm import CalibrationLike
from dise_decide.params import DecisionParams
from dise_decide.questions import Question, check_questions

if TYPE_CHECKING:
    import numpy as np
    import pyarrow
    from numpy.typing import NDArray

__all__ = ["DiseDecider", "DiseGenerator", "DiseScorer"]


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
        self._llm.planner.check(params)

    def __call__(self, batch: pyarrow.Table | Mapping[str, NDArray[np.generic]]) -> pyarrow.Table:
        """Return the batch, a table or columns, with the answers' columns added."""
        import pyarrow

        table = batch if isinstance(batch, pyarrow.Table) else pyarrow.table(dict(batch))
        outcomes = in_order(self._llm, table.to_pylist(), self._checked, lambda _: None)
        columns = columns_of([to_json(outcome) for _, outcome in outcomes], self._params)
        earlier = [name for name in table.column_names if name in columns]
        return with_columns(table.drop_columns(earlier), columns)

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
        params = seeded(self._params, row["id"])
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
