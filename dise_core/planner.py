"""Turns a user's request into a plan: checks it, looks up its strategies, builds the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from dise_core.answers import Answers
from dise_core.arrays import Ids
from dise_core.calibration import Calibration
from dise_core.catalog import Catalog
from dise_core.cost import count_cost
from dise_core.deciding import Decider
from dise_core.decisions import DecisionOutput
from dise_core.denoise import Denoiser
from dise_core.errors import InputError
from dise_core.finished import FinishedBlocks
from dise_core.fitting import check_tokens, fitted
from dise_core.given import check_choice, check_list, params_of, several
from dise_core.interfaces import Scorer, UnmaskingPolicy
from dise_core.model import MaskPredictor
from dise_core.noise import Noise, drawn_seed
from dise_core.outputs import Generation, RequestOutput
from dise_core.params import DecisionParams, SamplingParams, ScoringParams
from dise_core.prompts import GivenPrompt, Message, Prompt, Prompts, Translation
from dise_core.questions import Question
from dise_core.reading import Plan, gather, numbered
from dise_core.scoring import SequenceScorer
from dise_core.sequence import TokenSequence
from dise_core.slots import Wordings
from dise_core.waves import in_waves
from dise_core.writer import Writer

P = TypeVar("P", bound=ScoringParams)


@dataclass(frozen=True, slots=True)
class Planner:
    """Turns requests into plans. A plan checks its request before its first read.

    predictors: the loaded models by name, "target" and possibly "judge". calibration: of the
    diffusion model's scores, as the user named it. own: the one that comes with the model, for
    requests that it fits where the user named none. wordings: of questions that were asked before.
    """

    predictors: Mapping[str, MaskPredictor]
    catalog: Catalog
    calibration: Calibration | None = None
    own: Calibration | None = None
    wordings: Wordings = field(default_factory=Wordings, compare=False)

    @property
    def predictor(self) -> MaskPredictor:
        """The diffusion model, which generates and scores."""
        return self.predictors["target"]

    @property
    def _prompts(self) -> Prompts:
        return Prompts(self.predictors)

    def generate(
        self, prompt: Prompt, params: SamplingParams, chat: bool | None = None
    ) -> Plan[RequestOutput]:
        """Return a plan of the responses to one prompt, best score first.

        chat: whether to apply the model's chat template to a text; None: if it has one.
        """
        return (yield from self._generate(self._prompts.read(prompt, chat), params))

    def chat(self, messages: Sequence[Message], params: SamplingParams) -> Plan[RequestOutput]:
        """Return a plan of the responses to a conversation."""
        return (yield from self._generate(self._prompts.conversation(messages), params))

    def score(
        self,
        prompt: Prompt,
        response: Prompt,
        params: ScoringParams,
        chat: bool | None = None,
        finished: bool | None = None,
    ) -> Plan[RequestOutput]:
        """Return a plan of the score of a given response; the prompt may be empty.

        finished: whether the response ends here, so that an end token follows it, which scorers
        read and none selects; None: if it is a text. Token ids are whole as they are.
        """
        check_choice(finished, "finished")
        given = self._prompts.read_or_none(prompt, chat)
        return (yield from self._evaluate(given, [response], params, finished))

    def rank(
        self,
        prompt: Prompt,
        candidates: Sequence[Prompt],
        params: ScoringParams,
        chat: bool | None = None,
    ) -> Plan[RequestOutput]:
        """Return a plan of the candidates, likeliest first: by log-likelihood if the scorer
        estimates one, else by score.
        """
        check_list(candidates, "candidates", "a list of texts or of token ids")
        if len(candidates) == 0:
            raise InputError("no candidate given", "candidates")
        given = self._prompts.read_or_none(prompt, chat)
        return (yield from self._evaluate(given, candidates, params, finished=False))

    def decide(
        self,
        given: str | Sequence[Message],
        questions: Sequence[Question],
        params: DecisionParams,
        chat: bool | None = None,
    ) -> Plan[DecisionOutput]:
        """Return a plan of the answers to typed questions about a text or a conversation."""
        check_choice(chat, "chat")
        decider = Decider(self._prompts, params, chat, self.wordings)
        return (yield from decider.decide(given, questions))

    def generations(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
        chat: bool | None,
    ) -> list[Plan[RequestOutput]]:
        """Return the plans of one or several prompts; params apply to all, or one to each."""
        many = cast("list[Prompt]", several(prompts, "prompt"))
        each = _paired(params, len(many), "prompts")
        check_choice(chat, "chat")
        pairs = zip(many, each, strict=True)
        return numbered([self.generate(*pair, chat) for pair in pairs], "prompt")

    def conversations(
        self,
        conversations: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | Sequence[SamplingParams] | None,
    ) -> list[Plan[RequestOutput]]:
        """Return the plans of one or several conversations; params as for prompts."""
        check_list(conversations, "conversations", "a conversation or a list of them")
        is_one = len(conversations) > 0 and isinstance(conversations[0], Mapping)
        many = cast("list[Sequence[Message]]", [conversations] if is_one else list(conversations))
        if not many:
            raise InputError("no conversation given", "conversations")
        each = _paired(params, len(many), "conversations")
        pairs = zip(many, each, strict=True)
        return numbered([self.chat(*pair) for pair in pairs], "conversation")

    def scores(
        self,
        prompts: Prompt | Sequence[Prompt],
        responses: Prompt | Sequence[Prompt],
        params: ScoringParams | None,
        chat: bool | None,
        finished: bool | None = None,
    ) -> list[Plan[RequestOutput]]:
        """Return the plans of one or several (prompt, response) pairs. finished: see `score`."""
        many = cast("list[Prompt]", several(prompts, "prompt"))
        answers = cast("list[Prompt]", several(responses, "response"))
        if len(many) != len(answers):
            raise InputError(
                f"{len(many)} prompts do not pair up with {len(answers)} responses", "responses"
            )
        check_choice(chat, "chat")
        check_choice(finished, "finished")
        its = params_of(params, ScoringParams)
        pairs = zip(many, answers, strict=True)
        return numbered([self.score(*pair, its, chat, finished) for pair in pairs], "text")

    def texts(
        self,
        prompt: Prompt,
        responses: Sequence[Prompt],
        params: ScoringParams,
        chat: bool | None = None,
    ) -> list[TokenSequence]:
        """Return the checked texts that `score` would score, for callers that use several scorers.
        Raises InputError for a text that `score` would refuse.
        """
        given = self._prompts.read_or_none(prompt, chat)
        params = fitted(params, self.predictor.info)
        return self._finished(given, responses, params.block_length)

    def _finished(
        self, prompt: GivenPrompt, responses: Sequence[Prompt], block_length: int
    ) -> list[TokenSequence]:
        """Return the checked texts. Raises InputError, which names one of several by its number."""
        texts = []
        for number, response in enumerate(responses, start=1):
            try:
                texts.append(self._prompts.finished(prompt, response, block_length))
            except InputError as error:
                if len(responses) == 1:
                    raise
                raise error.at(f"candidate {number}") from error
        return texts

    def end_id(self, prompt: Prompt, chat: bool | None = None) -> int | None:
        """Return the end token that follows a finished response to the prompt, if there is one."""
        return self._prompts.end_id(self._prompts.read_or_none(prompt, chat))

    def translation(self, prompt: Prompt, chat: bool | None = None) -> Translation | None:
        """Return how the judge reads texts with that prompt; None if no judge is loaded."""
        return self._prompts.translation(self._prompts.read_or_none(prompt, chat))

    def prompt_ids(self, prompt: Prompt, chat: bool | None = None) -> Ids:
        """Return the prompt's token ids as the model reads them, int64 [P]."""
        return self._prompts.read(prompt, chat).ids

    def check_scorer(self, name: str, scorer: Scorer) -> None:
        """Raise InputError, which calls the scorer `name`, if the model that the scorer asks is not
        loaded or is of the wrong kind.
        """
        if scorer.asks == "judge" and "judge" not in self.predictors:
            raise InputError(
                f"scorer {name!r} needs an auto-regressive judge; name one with --judge MODEL "
                "(judge=...)",
                "judge",
            )
        if scorer.asks == "target" and self.predictor.info.is_autoregressive:
            raise InputError(
                f"scorer {name!r} needs a diffusion language model, and "
                f"{self.predictor.info.name!r} is auto-regressive; score with 'ar-perplexity', "
                "or use another model",
                "scorer",
            )

    def _evaluate(
        self,
        prompt: GivenPrompt,
        responses: Sequence[Prompt],
        params: ScoringParams,
        finished: bool | None,
    ) -> Plan[RequestOutput]:
        params = self._fitted(params)
        scorer, params = self._scorer(prompt, params)
        calibration = self.calibration if finished is False else self._calibration(scorer, params)
        if isinstance(responses[0], str) if finished is None else finished:
            scorer = replace(scorer, end_id=self._prompts.end_id(prompt))
        sequences = self._finished(prompt, responses, params.block_length)
        evaluations, cost = yield from count_cost(
            gather(*(scorer.evaluate(sequence) for sequence in sequences))
        )
        generations = [Generation(*pair) for pair in zip(sequences, evaluations, strict=True)]
        return Answers(self.predictor, calibration).given(prompt, generations, params, cost)

    def _generate(self, prompt: GivenPrompt, params: SamplingParams) -> Plan[RequestOutput]:
        self._prompts.check_room(prompt, params.max_tokens)
        params = self._fitted(params)
        check_tokens(params, self.predictor.info)
        if self.calibration is not None:
            self.calibration.check_answers(self.catalog, params)
        if params.seed is None:
            params = params.model_copy(update={"seed": drawn_seed()})
        writer = self._writer(params)
        policy = self._policy(params)
        scorer, params = self._scorer(prompt, params)

        def sample(number: int) -> Plan[Generation]:
            denoiser = self._denoiser(prompt, params, policy, number)
            its_scorer = replace(scorer, finished=denoiser.finished)
            return writer.write(prompt.ids, denoiser, its_scorer)

        calibration = self._calibration(scorer, params)
        generations, cost = yield from count_cost(in_waves(sample, params, calibration))
        return Answers(self.predictor, calibration).written(prompt, generations, params, cost)

    def _writer(self, params: SamplingParams) -> Writer:
        controller = self.catalog.length_controller(params.length or "", params.length_settings)
        if params.reviser is None:
            return Writer(controller)
        return Writer(controller, self.catalog.reviser(params.reviser, params.reviser_settings))

    def _fitted(self, params: P) -> P:
        """Return the params as they apply to the model and its calibration."""
        params = fitted(params, self.predictor.info)
        return params if self.calibration is None else self.calibration.applied(params)

    def _policy(self, params: SamplingParams) -> UnmaskingPolicy:
        policy = self.catalog.unmasking_policy(params.unmasking, params.unmasking_settings)
        if params.num_samples > 1 and params.temperature == 0 and not policy.is_random:
            raise InputError(
                f"{params.num_samples} responses at temperature 0 would all be the same; set a "
                "temperature above 0 or "
                "unmasking 'random'",
                "temperature",
            )
        return policy

    def _scorer(self, prompt: GivenPrompt, params: P) -> tuple[SequenceScorer, P]:
        """Return the scorer of texts with this prompt, and the params with the name of its selector
        filled in. Raises InputError for unknown names, for a model that is not loaded, and for
        scores that the calibration is not for.
        """
        scorer = self.catalog.scorer(params.scorer, params.scorer_settings)
        self.check_scorer(params.scorer, scorer)
        name = params.selector or scorer.default_selector
        params = params.model_copy(update={"selector": name})
        selector = self.catalog.selector(name)
        if self.calibration is not None:
            self.calibration.check_scores(self.catalog, params, scorer, selector, self._judge)
        translation = self._prompts.translation(prompt)
        bound = SequenceScorer(scorer, selector, params.logprobs, translation, params.scorer)
        return bound, params

    def _calibration(self, scorer: SequenceScorer, params: ScoringParams) -> Calibration | None:
        """Return what tells the probability of an answer: the user's calibration, or the model's
        own where it fits the request.
        """
        if self.calibration is not None or self.own is None:
            return self.calibration
        is_fit = self.own.fits(self.catalog, params, scorer.scorer, scorer.selector, self._judge)
        return self.own if is_fit else None

    @property
    def _judge(self) -> str:
        """The name of the judge, "" without one."""
        return self.predictors["judge"].info.name if "judge" in self.predictors else ""

    def _denoiser(
        self, prompt: GivenPrompt, params: SamplingParams, policy: UnmaskingPolicy, sample: int
    ) -> Denoiser:
        noise, info = Noise.for_request(params.seed or 0, prompt.ids, sample), self.predictor.info
        finished = None
        if info.block_length is not None:
            finished = FinishedBlocks(info, params.cache != "none")
        return Denoiser(info, policy, noise, params, sample, finished=finished)


def _paired(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int, what: str
) -> list[SamplingParams]:
    """Return the params of each of `count` requests: one for all, or one for each."""
    each = [*params] if isinstance(params, list | tuple) else [params] * count
    if len(each) != count:
        raise InputError(f"{count} {what} do not pair up with {len(each)} params", "params")
    return [params_of(its, SamplingParams) for its in each]
