"""Continuous batching: plans join and leave between forward passes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from time import perf_counter
from typing import TypeVar

from dise_core.engine.caller import Caller
from dise_core.engine.contract import answers_of, are_valid, bad_answer, check_row, failure, named
from dise_core.engine.request import Request
from dise_core.engine.scheduler import Scheduler
from dise_core.errors import UnreachableError
from dise_core.models.completion import completed
from dise_core.models.predictor import MaskPredictor, Shown, unshown
from dise_core.params.engine import EngineConfig
from dise_core.plans.outcome import Outcome
from dise_core.plans.plan import Plan
from dise_core.plans.reading import Read, Reading
from dise_core.plans.rows import Row

T = TypeVar("T")

RowBatch = list[tuple[Request, Row]]
RowAnswer = Sequence[Reading] | Exception


class Engine:
    """Runs plans on the loaded predictors. Other plans change no answer."""

    def __init__(
        self, predictors: Mapping[str, MaskPredictor], config: EngineConfig, shown: Shown = unshown
    ) -> None:
        """shown: shows the loading of weights that wait for the first pass."""
        self._predictors, self._config, self._shown = predictors, config, shown
        self.max_running = config.max_num_seqs
        """The most requests that run at one time."""

    def run(self, plans: Iterable[Plan[T]]) -> Iterator[Outcome[T]]:
        """Yield the outcome of each plan as it ends. Plans are taken as room appears.

        A plan that raises, or whose reads are invalid, ends with its error and affects no
        other. Closing this iterator closes the running plans, and so does Ctrl-C.
        """
        arriving = enumerate(plans)
        caller = Caller(is_alone=True)
        running: dict[int, Request] = {}
        try:
            while True:
                for index, plan in islice(arriving, self.max_running - len(running)):
                    running[index] = self.request(plan, caller)
                    running[index].start()
                if not running:
                    return
                if any(request.rows for request in running.values()):
                    self.step(list(running.values()))
                for index, request in list(running.items()):
                    if request.is_finished:
                        del running[index]
                        yield Outcome(index, request.result, request.error, request.seconds)
        except KeyboardInterrupt as interrupt:
            # A notebook keeps the traceback, and its frames would keep what their texts
            # cached.
            raise interrupt.with_traceback(None) from None
        finally:
            for request in running.values():
                request.close()

    def load(self) -> None:
        """Load the weights that are not loaded yet."""
        # The judge comes first: the model's cache is planned from the memory that is then
        # left.
        for predictor in reversed(dict.fromkeys(self._predictors.values())):
            with named(predictor):
                predictor.load_weights(self._shown)

    @cached_property
    def _scheduler(self) -> Scheduler:
        """Made late: only a loaded model knows the room of its cache."""
        self.load()
        models = self._predictors.items()
        rooms = {name: model.room for name, model in models if model.room is not None}
        return Scheduler(self._config.max_num_seqs, self._config.max_batch_tokens, rooms)

    def request(self, plan: Plan[object], caller: Caller | None = None) -> Request:
        caller = caller or Caller()
        return Request(plan, caller, partial(self._prepare, caller.cache_salt))

    def step(self, running: list[Request]) -> None:
        batch = self._sound(self._scheduler.schedule(running))
        begun = perf_counter()
        answers = self._answers(batch)
        seconds = perf_counter() - begun if batch else 0.0
        self._scheduler.ran(seconds)
        for (request, row), answer in zip(batch, answers, strict=True):
            request.settle(row, answer)
        for request in self._scheduler.going_on(running, seconds):
            request.go_on()

    def _prepare(self, salt: str, read: Read) -> Read:
        """Return the Read as its model runs it, so that it takes the room of what runs.
        salt: that of its caller.
        """
        predictor = self._predictors.get(read.predictor)
        if salt:
            read = replace(read, cache_salt=salt + read.cache_salt)
        return read if predictor is None else completed(read, predictor.info)

    def _sound(self, batch: RowBatch) -> RowBatch:
        """Return the valid rows; an invalid row fails its whole request."""
        are_known = are_valid(self._predictors, [row for _, row in batch])
        for request, row in batch:
            try:
                check_row(self._predictors, row, request.reads_of(row), are_known)
            except Exception as error:  # a plan may yield Reads of anything
                request.settle(row, failure(error))
        return [(request, row) for request, row in batch if row in request.rows]

    def _answers(self, batch: RowBatch) -> list[RowAnswer]:
        """Return the answer to each row. If a batch fails, each row is run alone to find
        the one at fault; not if no row is, since the model is out of reach.
        """
        if not batch:
            return []
        name = batch[0][1].predictor
        questions = [request.reads_of(row) for request, row in batch]
        reads = [read for of_row in questions for read in of_row]
        predictor = self._predictors[name]
        try:
            readings = answers_of(predictor, name, reads)
        except BaseException as error:
            failed = error if isinstance(error, Exception) else failure(error)
            if len(batch) == 1 or isinstance(failed, UnreachableError):
                return [failed] * len(batch)
            return [answer for single in batch for answer in self._answers([single])]
        is_good = bad_answer(predictor, name, reads, readings) is None
        stream, answers = iter(readings), list[RowAnswer]()
        for of_row in questions:
            answer = list(islice(stream, len(of_row)))
            bad = None if is_good else bad_answer(predictor, name, of_row, answer)
            answers.append(bad or answer)
        return answers
