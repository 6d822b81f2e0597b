"""LLM: the front door, shaped like vLLM's. AsyncLLM has the same verbs."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Unpack, cast, overload

from dise_core.canvas import Canvases, CanvasUpdate
from dise_core.catalog import Catalog
from dise_core.engine import Engine, Outcome
from dise_core.engine.request import Request
from dise_core.errors import InputError
from dise_core.model import MaskPredictor
from dise_core.outputs import RequestOutput
from dise_core.params import EngineConfig, EngineOptions, SamplingParams, ScoringParams
from dise_core.planner import Planner
from dise_core.plugins import installed_catalog
from dise_core.prompts import Message, Prompt
from dise_core.reading import Plan
from dise_core.threads import choose_threads

Texts = Sequence[Prompt]
TextLists = Sequence[Texts]
Choices = Texts | TextLists
Given = Prompt | Texts
"""One prompt, or several."""

Sampling = SamplingParams | Sequence[SamplingParams] | None
"""Settings for all prompts, or one for each; None for the defaults."""

Scoring = ScoringParams | None
Chat = bool | None
"""Whether a text goes through the model's chat template; None: where it has one."""

THE_MODELS_OWN = ("revision", "adapter", "mask_token_id", "block_size")
"""Options that describe the model, and not its judge."""


class LLM:
    """A loaded diffusion language model that generates, and says how sure it is.

    >>> llm = LLM("countdown")
    >>> [answer] = llm.generate("83,18,75 -> 10", SamplingParams(max_tokens=48, block_length=16))
    >>> answer.outputs[0].score.value  # mean log-probability of the last ten tokens, in nats
    """

    def __init__(
        self,
        model: str | MaskPredictor = "countdown",
        *,
        judge: str | MaskPredictor | None = None,
        catalog: Catalog | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        """Load a model by name, folder or hub id, or take one that is loaded; `options` are
        EngineConfig's fields.

        judge: an auto-regressive model for the scorers that ask one; an auto-regressive `model`
        judges for itself. The options THE_MODELS_OWN are the model's: a judge is of the hub's main
        branch and finds its own adapter.

        Raises InputError for an unknown model, ModelError for one that cannot be loaded,
        PluginError for a bad plugin.
        """
        choose_threads()
        self.config = EngineConfig(**options)
        self.catalog = catalog or installed_catalog()
        self.predictor = self._loaded(model, self.config)
        predictors = {"target": self.predictor}
        if judge is not None or self.predictor.info.is_autoregressive:
            predictors["judge"] = self.predictor if judge is None else self._loaded_judge(judge)
        self.planner = Planner(predictors, self.catalog)
        self.engine = Engine(predictors, self.config)

    def generate(
        self, prompts: Given, params: Sampling = None, *, chat: Chat = None
    ) -> list[RequestOutput]:
        """Return the responses to each prompt, a text or token ids, in order; params are for all,
        or one for each.

        A text goes through the model's chat template where it has one (chat=None), always (True) or
        never (False). Raises the first request's error after all the others are done.
        """
        return self._all(self.planner.generations(prompts, params, chat))

    def chat(
        self,
        conversations: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | None = None,
    ) -> list[RequestOutput]:
        """Return the responses to each conversation, a list of {"role", "content"} messages, in
        order.
        """
        return self._all(self.planner.conversations(conversations, params))

    def score(
        self, prompts: Given, responses: Given, params: Scoring = None, *, chat: Chat = None
    ) -> list[RequestOutput]:
        """Return the score of each response given its prompt, in order; one output for each, its
        finish_reason None.

        An empty prompt scores the response as a text of its own. Prompts and responses pair up one
        to one.
        """
        return self._all(self.planner.scores(prompts, responses, params, chat))

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
        """Return the candidate responses to one prompt, likeliest first, or to each of several
        prompts its own in a list; each output's `index` is the candidate's index in the argument.

        They are ranked by log-likelihood where the scorer estimates it, else by the score's value.
        Raises InputError where prompts and lists of candidates do not pair up, or one is empty.
        """
        answers = self._all(rankings(self.planner, prompts, candidates, params, chat))
        return answers[0] if is_one(prompts) else answers

    def stream(
        self,
        prompt: Prompt | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        chat: Chat = None,
    ) -> Generator[CanvasUpdate | RequestOutput, None, None]:
        """Yield what each denoising step commits, and last the answer to a prompt or, where it is a
        list of messages, to a conversation. Raises what `generate` raises.

        Leaving the iteration early ends the request.
        """
        request = Request(0, request_plan(self.planner, prompt, params, chat))
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

    def run(self, plans: Iterable[Plan[RequestOutput]]) -> Iterator[Outcome[RequestOutput]]:
        """Yield the outcome of each of the planner's plans as it ends, its `index` that of the
        plan; a failure is one outcome, not an exception. Plans are taken as room appears.
        """
        return self.engine.run(plans)

    def _loaded_judge(self, model: str | MaskPredictor) -> MaskPredictor:
        judge = self._loaded(model, self.config.model_copy(update=dict.fromkeys(THE_MODELS_OWN)))
        if not judge.info.is_autoregressive:
            raise InputError(f"judge {judge.info.name!r} is not auto-regressive", "judge")
        return judge

    def _loaded(self, model: str | MaskPredictor, config: EngineConfig) -> MaskPredictor:
        return self.catalog.load_model(model, config) if isinstance(model, str) else model

    def _all(self, plans: Iterable[Plan[RequestOutput]]) -> list[RequestOutput]:
        outcomes = sorted(self.run(plans), key=lambda outcome: outcome.index)
        return [outcome.unwrap() for outcome in outcomes]


def request_plan(
    planner: Planner, prompt: Prompt | Sequence[Message], params: SamplingParams | None, chat: Chat
) -> Plan[RequestOutput]:
    """Return the plan of a prompt, or of a conversation where it is a list of messages."""
    if not isinstance(prompt, str) and any(isinstance(item, Mapping) for item in prompt):
        return planner.chat(cast("Sequence[Message]", prompt), params or SamplingParams())
    return planner.generate(cast("Prompt", prompt), params or SamplingParams(), chat)


def rankings(
    planner: Planner, prompts: Given, candidates: Choices, params: Scoring, chat: Chat
) -> list[Plan[RequestOutput]]:
    """Return the plans of one prompt with its candidates, or of several, each with its own.

    Raises InputError where they do not pair up.
    """
    many = cast("Sequence[Prompt]", [prompts] if is_one(prompts) else prompts)
    lists = cast("Sequence[Sequence[Prompt]]", [candidates] if is_one(prompts) else candidates)
    if len(many) != len(lists):
        raise InputError(
            f"{len(many)} prompts do not pair up with {len(lists)} lists of candidates",
            "candidates",
        )
    pairs = zip(many, lists, strict=True)
    return [planner.rank(prompt, its, params or ScoringParams(), chat) for prompt, its in pairs]


def is_one(prompts: Given) -> bool:
    """Return whether it is one prompt: a text, or token ids, none of them too."""
    return isinstance(prompts, str) or all(isinstance(item, Integral) for item in prompts)
