"""LLM: the main entry point, modelled on vLLM's LLM. AsyncLLM has the same methods."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Iterator, Sequence
from os import PathLike, fspath
from typing import Self, TypeVar, Unpack, overload

from dise_core.asking import (
    Asked,
    AskedMany,
    Chat,
    Choices,
    Deciding,
    Given,
    Inputs,
    Questions,
    Sampling,
    Scoring,
    TextLists,
    Texts,
    decisions,
    is_one_input,
    one_of_both,
    rankings,
    request_plan,
)
from dise_core.calibration import calibration_of
from dise_core.canvas import Canvases, CanvasUpdate
from dise_core.catalog import Catalog
from dise_core.decisions import DecisionOutput
from dise_core.engine import Engine, Outcome
from dise_core.engine_options import EngineOptions
from dise_core.errors import ClosedError, InputError
from dise_core.given import is_one, several
from dise_core.model import MaskPredictor
from dise_core.outcomes import OnError, answers, check_on_error, results
from dise_core.outputs import RequestOutput
from dise_core.params import EngineConfig, SamplingParams, ScoringParams
from dise_core.planner import Planner
from dise_core.plugins import installed_catalog
from dise_core.prompts import Message, Prompt
from dise_core.reading import Plan
from dise_core.records import Record
from dise_core.threads import choose_threads

T = TypeVar("T")


class LLM:
    """A loaded diffusion language model that generates responses and scores how sure it is of them.

    Examples:
        >>> llm = LLM("countdown")
        >>> [answer] = llm.generate("83,18,75 -> 10", SamplingParams(max_tokens=48))
        >>> answer.outputs[0].score.value  # mean log-probability of the last ten tokens, in nats

        >>> with LLM("countdown") as llm:  # frees the model at the end
        ...     [answer] = llm.generate("83,18,75 -> 10")
    """

    def __init__(
        self,
        model: str | PathLike[str] | MaskPredictor = "countdown",
        *,
        judge: str | PathLike[str] | MaskPredictor | None = None,
        catalog: Catalog | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        """Load a model by name, folder or hub id, or take a loaded one; `options` are the fields of
        EngineConfig.

        judge: an auto-regressive model for the scorers that need one; without it an auto-regressive
        `model` is its own judge. EngineConfig.for_judge says which options apply to it: it comes
        from the hub's main branch, and the adapter that claims it loads it. The option
        `calibration` takes a file or a Calibration.

        Raises InputError for an unknown model, ModelError for one that cannot be loaded,
        PluginError for one whose name two plugins claim.
        """
        choose_threads()
        given = options.get("calibration")
        calibration = calibration_of(given)
        file = fspath(given) if isinstance(given, str | PathLike) else None
        fields: Record = {**options, "calibration": file}
        self.config = EngineConfig(**fields)
        self.catalog = catalog or installed_catalog()
        if judge is None and (self.config.judge_device or self.config.judge_dtype):
            raise InputError("judge_device and judge_dtype need a judge: name one", "judge")
        # The judge comes first: the model's cache is planned from the memory that is then left.
        its_judge = None if judge is None else self._loaded_judge(judge)
        predictor = self._loaded(model, self.config)
        predictors = {"target": predictor}
        if its_judge is not None or predictor.info.is_autoregressive:
            predictors["judge"] = predictor if its_judge is None else its_judge
        if calibration is not None:
            calibration.check_model(predictor)
        own = calibration_of(predictor.calibration_file)
        planner = Planner(predictors, self.catalog, calibration, own)
        self._open: tuple[Planner, Engine] | None = (planner, Engine(predictors, self.config))
        self._told = repr(predictor.info.name)
        self._is_loader = not isinstance(model, MaskPredictor)
        if self._is_loader:
            self._told += f", engine={self.config.engine!r}, device={self.config.device!r}"

    def __repr__(self) -> str:
        return f"LLM({self._told})"

    @property
    def planner(self) -> Planner:
        """What turns requests into plans for `run`."""
        return self._parts()[0]

    @property
    def engine(self) -> Engine:
        """What runs plans."""
        return self._parts()[1]

    @property
    def predictor(self) -> MaskPredictor:
        """The loaded model."""
        return self.planner.predictor

    def _parts(self) -> tuple[Planner, Engine]:
        if self._open is None:
            raise ClosedError(f"{self!r} is closed; load the model again")
        return self._open

    def close(self) -> None:
        """Free the models that it loaded. After it each method raises ClosedError."""
        self._open = None
        if self._is_loader:
            gc.collect()  # a model may be part of a circle of references

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def generate(
        self,
        prompts: Given,
        params: Sampling = None,
        *,
        sampling_params: Sampling = None,
        chat: Chat = None,
        on_error: OnError = "raise",
    ) -> list[RequestOutput]:
        """Return one answer per prompt (a text or token ids), in order; params, which vLLM calls
        sampling_params, apply to all prompts or are a sequence, one per prompt.

        A text goes through the model's chat template if it has one (chat=None), always (True) or
        never (False). on_error: "raise" raises the first failed request's error after all others
        are done; "return" gives it an answer with the `error` and without outputs.
        """
        its = one_of_both(params, sampling_params)
        plans = self.planner.generations(prompts, its, chat)
        return self._answers(plans, on_error, several(prompts, "prompt"))

    def chat(
        self,
        conversations: Sequence[Message] | Sequence[Sequence[Message]],
        params: Sampling = None,
        *,
        sampling_params: Sampling = None,
        on_error: OnError = "raise",
    ) -> list[RequestOutput]:
        """Return one answer per conversation, a list of {"role", "content"} messages, in order.
        params, sampling_params, on_error: see `generate`.
        """
        its = one_of_both(params, sampling_params)
        return self._answers(self.planner.conversations(conversations, its), on_error)

    def score(
        self,
        prompts: Given,
        responses: Given,
        params: ScoringParams | None = None,
        *,
        chat: Chat = None,
        finished: bool | None = None,
        on_error: OnError = "raise",
    ) -> list[RequestOutput]:
        """Return the score of each response given its prompt, in order: an answer with one output,
        its finish_reason None. on_error: see `generate`.

        Prompts and responses pair up one to one; an empty prompt scores the response alone.
        finished: whether a response ends here, so that the scorers read an end token after it;
        None: if it is a text. Token ids are whole as they are.
        """
        plans = self.planner.scores(prompts, responses, params, chat, finished)
        return self._answers(plans, on_error, several(prompts, "prompt"))

    @overload
    def rank(  # type: ignore[overload-overlap]
        self, prompts: Prompt, candidates: Texts, params: Scoring = None, *, chat: Chat = None
    ) -> RequestOutput: ...

    @overload
    def rank(
        self, prompts: Texts, candidates: TextLists, params: Scoring = None, *, chat: Chat = None
    ) -> list[RequestOutput]: ...

    def rank(
        self, prompts: Given, candidates: Choices, params: Scoring = None, *, chat: Chat = None
    ) -> RequestOutput | list[RequestOutput]:
        """Return one prompt's candidates, likeliest first; for several prompts, a list with one
        such answer each. An output's `index` is the candidate's index in the argument.

        Candidates are ranked by log-likelihood if the scorer estimates it, else by score. Raises
        InputError if prompts and lists of candidates do not pair up, or if a list is empty.
        """
        ranked = self._all(rankings(self.planner, prompts, candidates, params, chat))
        return ranked[0] if is_one(prompts) else ranked

    @overload
    def decide(  # type: ignore[overload-overlap]
        self, given: Asked, questions: Questions, params: Deciding = None, *, chat: Chat = None
    ) -> DecisionOutput: ...

    @overload
    def decide(
        self, given: AskedMany, questions: Questions, params: Deciding = None, *, chat: Chat = None
    ) -> list[DecisionOutput]: ...

    def decide(
        self, given: Inputs, questions: Questions, params: Deciding = None, *, chat: Chat = None
    ) -> DecisionOutput | list[DecisionOutput]:
        """Return the answers to typed questions about one input, a text or a conversation; for a
        list of inputs, a list with one such answer each.

        Examples:
            >>> spam = PredicateQuestion(instructions="Is this spam?")
            >>> llm.decide("You have won!", [spam]).answers[0].probability

        A probability is the softmax over the question's labels of the mean log-probability that a
        label's tokens have at the masks of the question's slot; an auto-regressive model judges by
        its next tokens. Raises InputError for what cannot be asked, before any pass.
        """
        decided = self._all(decisions(self.planner, given, questions, params, chat))
        return decided[0] if is_one_input(given) else decided

    def stream(
        self,
        prompt: Prompt | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        chat: Chat = None,
    ) -> Generator[CanvasUpdate | RequestOutput, None, None]:
        """Yield what each denoising step commits, then the answer. The prompt may be a
        conversation, a list of messages. Raises what `generate` raises.

        Leaving the iteration early cancels the request.
        """
        return self.watch(request_plan(self.planner, prompt, params, chat))

    def watch(
        self, plan: Plan[RequestOutput]
    ) -> Generator[CanvasUpdate | RequestOutput, None, None]:
        """Yield what each denoising step of one of the planner's plans commits, then the answer.
        Raises what the plan raises.

        Leaving the iteration early cancels the request.
        """
        request = self.engine.request(0, plan)
        canvases, seen = Canvases(self.predictor), None
        try:
            request.start()
            while not request.is_finished:
                if request.reads is not seen:
                    seen = request.reads
                    yield from canvases.updates(seen)
                self.engine.step([request])
        finally:
            request.close()
        if request.error is not None:
            raise request.error
        yield request.result

    def run(self, plans: Iterable[Plan[T]]) -> Iterator[Outcome[T]]:
        """Yield the outcome of each of the planner's plans as it ends; a failure is an outcome, not
        an exception. `index` counts the plans in order, which are taken as room appears.
        """
        return self.engine.run(plans)

    def _loaded_judge(self, model: str | PathLike[str] | MaskPredictor) -> MaskPredictor:
        judge = self._loaded(model, self.config.for_judge())
        if not judge.info.is_autoregressive:
            raise InputError(f"judge {judge.info.name!r} is not auto-regressive", "judge")
        return judge

    def _loaded(self, model: object, config: EngineConfig) -> MaskPredictor:
        if isinstance(model, str | PathLike):
            return self.catalog.load_model(fspath(model), config)
        if not isinstance(model, MaskPredictor):
            found = type(model).__name__
            raise InputError(
                f"a model is a name, a folder or a MaskPredictor, not {found}", "model"
            )
        return model

    def _all(self, plans: Iterable[Plan[T]]) -> list[T]:
        return results(self.run(plans))

    def _answers(
        self, plans: list[Plan[RequestOutput]], on_error: OnError, prompts: Sequence[object] = ()
    ) -> list[RequestOutput]:
        check_on_error(on_error)
        return answers(self.run(plans), on_error, self.predictor.info.name, prompts)
