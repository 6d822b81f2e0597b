"""LLM: the front door, shaped like vLLM's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Unpack

from dise_core.catalog import Catalog
from dise_core.engine import Engine, Outcome
from dise_core.errors import InputError
from dise_core.model import MaskPredictor
from dise_core.outputs import RequestOutput
from dise_core.params import EngineConfig, EngineOptions, SamplingParams, ScoringParams
from dise_core.planner import Planner
from dise_core.plugins import installed_catalog
from dise_core.prompts import Message, Prompt
from dise_core.reading import Plan
from dise_core.threads import choose_threads

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
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        chat: bool | None = None,
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
        self,
        prompts: Prompt | Sequence[Prompt],
        responses: Prompt | Sequence[Prompt],
        params: ScoringParams | None = None,
        *,
        chat: bool | None = None,
    ) -> list[RequestOutput]:
        """Return the score of each response given its prompt, in order; one output for each, its
        finish_reason None.

        An empty prompt scores the response as a text of its own. Prompts and responses pair up one
        to one.
        """
        return self._all(self.planner.scores(prompts, responses, params, chat))

    def rank(
        self,
        prompt: Prompt,
        candidates: Sequence[Prompt],
        params: ScoringParams | None = None,
        *,
        chat: bool | None = None,
    ) -> RequestOutput:
        """Return the candidate responses to one prompt, likeliest first; each output's `index` is
        its place in the argument.

        They are ranked by log-likelihood where the scorer estimates it, else by the score's value.
        """
        [answer] = self._all(
            [self.planner.rank(prompt, candidates, params or ScoringParams(), chat)]
        )
        return answer

    def run(self, plans: Iterable[Plan[RequestOutput]]) -> Iterator[Outcome[RequestOutput]]:
        """Yield the outcome of each of the planner's plans as it ends; a failure is one outcome,
        not an exception.
        """
        return self.engine.run(plans)

    def _loaded_judge(self, model: str | MaskPredictor) -> MaskPredictor:
        judge = self._loaded(model, self.config.model_copy(update=dict.fromkeys(THE_MODELS_OWN)))
        if not judge.info.is_autoregressive:
            raise InputError(f"judge {judge.info.name!r} is no auto-regressive model", "judge")
        return judge

    def _loaded(self, model: str | MaskPredictor, config: EngineConfig) -> MaskPredictor:
        return self.catalog.load_model(model, config) if isinstance(model, str) else model

    def _all(self, plans: Iterable[Plan[RequestOutput]]) -> list[RequestOutput]:
        outcomes = sorted(self.run(plans), key=lambda outcome: outcome.index)
        return [outcome.unwrap() for outcome in outcomes]
