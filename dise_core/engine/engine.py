"""Continuous batching of plans: new plans join and finished ones leave between forward passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np

from dise_core.completion import check_abilities, completed
from dise_core.engine.answers import checked
from dise_core.engine.caller import Caller
from dise_core.engine.request import Request, failure
from dise_core.engine.scheduler import Scheduler
from dise_core.errors import (
    DiseError,
    InputError,
    ModelError,
    PlanError,
    TooLongError,
    UnreachableError,
    shown,
)
from dise_core.model import MaskPredictor
from dise_core.params import EngineConfig
from dise_core.reading import Plan, Read, Reading
from dise_core.rows import Row
from dise_core.sequence import are_within, check_token_ids

T = TypeVar("T")

Batch = list[tuple[Request, Row]]

Answer = Sequence[Reading] | Exception


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """How one plan ended: its index in the caller's order, its result or else its error, and the
    seconds from its start to its end.
    """

    index: int
    result: T | None
    error: DiseError | None
    seconds: float

    def unwrap(self) -> T:
        """Return the result, or raise the error that ended the plan."""
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


class Engine:
    """Runs any number of plans on the loaded predictors. A plan gets the same answers alone and
    beside others.
    """

    def __init__(self, predictors: Mapping[str, MaskPredictor], config: EngineConfig) -> None:
        self._predictors = predictors
        rooms = {
            name: predictor.room
            for name, predictor in predictors.items()
            if predictor.room is not None
        }
        self._scheduler = Scheduler(config.max_num_seqs, config.max_batch_tokens, rooms)
        self.max_running = config.max_num_seqs
        """The most requests that run at one time."""

    def run(self, plans: Iterable[Plan[T]]) -> Iterator[Outcome[T]]:
        """Yield the outcome of each plan as it ends. Plans are taken from the iterable as room
        appears.

        A plan that raises, or whose reads are invalid, ends with its error and affects no other.
        Closing this iterator closes the plans that are running, and so does Ctrl-C, which raises
        KeyboardInterrupt.
        """
        arriving = enumerate(plans)
        caller = Caller(is_alone=True)
        running: list[Request] = []
        try:
            while True:
                self._admit(arriving, running, caller)
                if not running:
                    return
                self.step(running)
                for request in running:
                    if request.is_finished:
                        yield _outcome(request)
                running = [request for request in running if not request.is_finished]
        except KeyboardInterrupt as interrupt:
            # A notebook keeps the traceback, and its frames would keep what their texts cached.
            raise interrupt.with_traceback(None) from None
        finally:
            for request in running:
                request.close()

    def request(self, index: int, plan: Plan[object], caller: Caller | None = None) -> Request:
        """Return the plan as a request that has not started, for `step`."""
        return Request(index, plan, caller, self._prepared)

    def step(self, running: list[Request]) -> None:
        """Run one batch of the requests' rows and pass the answers to their requests."""
        batch = self._sound(self._scheduler.schedule(running))
        for (request, row), answer in zip(batch, self._answers(batch), strict=True):
            request.settle(row, answer)

    def _admit(
        self, arriving: Iterator[tuple[int, Plan[object]]], running: list[Request], caller: Caller
    ) -> None:
        while len(running) < self.max_running:
            index_and_plan = next(arriving, None)
            if index_and_plan is None:
                return
            request = self.request(*index_and_plan, caller)
            request.start()
            running.append(request)

    def _prepared(self, read: Read) -> Read:
        """Return the Read as its model runs it, so that it takes the room of what runs."""
        predictor = self._predictors.get(read.predictor)
        return read if predictor is None else completed(read, predictor.info)

    def _sound(self, batch: Batch) -> Batch:
        """Return the valid rows of the batch. An invalid row fails its request, whose other rows
        are then dropped too.
        """
        are_known = self._are_known([row for _, row in batch])
        for request, row in batch:
            try:
                self._check(row, request.reads_of(row), are_known)
            except Exception as error:  # a plan may yield Reads of anything
                request.settle(row, failure(error))
        return [(request, row) for request, row in batch if row in request.rows]

    def _are_known(self, rows: Sequence[Row]) -> bool:
        """Return whether the texts of a batch hold ids of the vocabulary alone. One look at all of
        them takes as long as a look at one.
        """
        try:
            texts = np.concatenate([row.token_ids for row in rows])
            return are_within(texts, self._predictors[rows[0].predictor].info.vocab_size)
        except Exception:  # a plan may yield Reads of anything: each is then looked at alone
            return False

    def _check(self, row: Row, reads: Sequence[Read], is_known: bool) -> None:
        """Raise InputError or PlanError for a row that its model cannot run. is_known: whether its
        text's ids are known to be in the vocabulary.
        """
        if row.predictor not in self._predictors:
            raise PlanError(
                f"no predictor {row.predictor!r} is loaded. Loaded: "
                f"{', '.join(sorted(self._predictors))}"
            )
        predictor = self._predictors[row.predictor]
        if len(row.token_ids) == 0:
            raise InputError("the text is empty: it needs at least one token")
        if len(row.token_ids) > predictor.info.max_length:
            raise TooLongError(
                f"a text of {len(row.token_ids)} tokens is longer than the model's limit of "
                f"{predictor.info.max_length}"
            )
        guided = row.guidance and (row.guidance.token_ids, row.guidance.context_ids)
        for ids in (None if is_known else row.token_ids, row.context_ids, *(guided or ())):
            if ids is not None:
                check_token_ids(ids, predictor.info.vocab_size)
        for read in reads:
            check_abilities(read, predictor.info, predictor.abilities)

    def _answers(self, batch: Batch) -> list[Answer]:
        """Return the answer to each row. If the predictor fails on the batch, each row is run alone
        to find the one at fault; not if no row is, since the model is out of reach. Raises
        KeyboardInterrupt at Ctrl-C.
        """
        if not batch:
            return []
        name = batch[0][1].predictor
        questions = [request.reads_of(row) for request, row in batch]
        reads = [read for of_row in questions for read in of_row]
        try:
            readings = self._read(name, reads)
        except BaseException as error:
            failed = error if isinstance(error, Exception) else failure(error)
            if len(batch) == 1 or isinstance(failed, UnreachableError):
                return [failed] * len(batch)
            return [answer for single in batch for answer in self._answers([single])]
        found = iter(readings)
        parts = [list(islice(found, len(of_row))) for of_row in questions]
        try:
            checked(self._predictors[name], name, reads, readings)
        except DiseError:
            pairs = zip(questions, parts, strict=True)
            return [self._checked(name, of_row, part) for of_row, part in pairs]
        return list(parts)

    def _read(self, predictor: str, reads: Sequence[Read]) -> Sequence[Reading]:
        readings: object = self._predictors[predictor].read(reads)
        if not isinstance(readings, Sequence):
            found = shown(readings)
            raise ModelError(f"predictor {predictor!r} must answer a list of Readings, not {found}")
        if len(readings) != len(reads):
            raise ModelError(
                f"predictor {predictor!r} answered {len(readings)} of {len(reads)} reads"
            )
        return readings

    def _checked(self, name: str, reads: Sequence[Read], readings: Sequence[Reading]) -> Answer:
        """Return the readings of one row, or the error that they are."""
        try:
            return checked(self._predictors[name], name, reads, readings)
        except DiseError as error:
            return error


def _outcome(request: Request) -> Outcome[Any]:
    return Outcome(request.index, request.result, request.error, request.seconds)
