"""Resolves requests: checks them, looks up what they name, and applies the model's
limits. After that no name is looked up, and nothing is rewritten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from pydantic import JsonValue

from dise_core.constraints.constrained import Constrained
from dise_core.constraints.orders import Order
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.engine.caller import CALLER_SALT
from dise_core.errors import InputError
from dise_core.front.calibrated import Answers, Calibrated, Calibrations, settings_of_answers
from dise_core.front.model_limits import check_constraint, check_gap, fitted, heeding, in_gap
from dise_core.models.inputs import params_of
from dise_core.models.predictor import MaskPredictor
from dise_core.models.prompts import GivenPrompt, Prompt, Prompts
from dise_core.noise import Noise, drawn_seed
from dise_core.params.objects import name_of
from dise_core.params.requests import SamplingParams, ScoringParams
from dise_core.plans.readouts import Confidence
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.kinds import CONSTRAINT, LENGTH, REVISER, SCORER, SELECTOR, UNMASKING
from dise_core.scoring.calibration import Calibration
from dise_core.scoring.scorer import Scorer
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.sequence import TokenSequence
from dise_core.writing.denoise import Denoiser
from dise_core.writing.memory import memory_of
from dise_core.writing.policy import UnmaskingPolicy
from dise_core.writing.writer import Writer

P = TypeVar("P", bound=ScoringParams)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A request about one prompt, with the objects that its params name. calibrated: what
    tells probabilities of its scores.
    """

    prompt: GivenPrompt
    params: ScoringParams
    scorer: SequenceScorer
    calibrated: Calibrated


@dataclass(frozen=True, slots=True)
class ResolvedScoring(Resolved):
    """A request for the scores of given texts."""

    texts: Sequence[TokenSequence]


@dataclass(frozen=True, slots=True)
class ResolvedWriting(Resolved):
    """A request for answers. stopping: what makes probabilities of the scores that
    `stop_at` is compared with. denoiser: of any answer.
    """

    params: SamplingParams
    stopping: Calibration | None
    writer: Writer
    denoiser: Denoiser

    @property
    def constraint(self) -> Constrained | None:
        return self.denoiser.constraint

    def denoiser_of(self, number: int) -> Denoiser:
        """Return what writes the answer of that number."""
        noise = Noise.for_request(self.params.seed or 0, self.prompt.ids, number)
        memory = memory_of(self.denoiser.info, self.params)
        return replace(self.denoiser, sample=number, noise=noise, memory=memory)

    @property
    def at_once(self) -> int:
        """Answers that may go on in one step."""
        return self.params.num_samples if self.constraint is None else self.constraint.at_once


@dataclass
class Preparation:
    """What the params of a request come to, whatever its prompts are: found out when it
    is first asked, and then kept for all of them, but for the constraint, which would
    fill the memory until the last of many prompts is done. tokens: what was built before
    of its constraint. salt: of whoever asks, who shares what is built with no other salt.
    """

    resolver: "Resolver"
    asked: SamplingParams
    is_gap: bool = False
    tokens: TokenAutomaton | None = None
    salt: str = field(default_factory=CALLER_SALT.get)

    @cached_property
    def params(self) -> SamplingParams:
        """The params as they apply to the model."""
        info, calibration = self.resolver.predictor.info, self.resolver.calibrations.named
        asked = in_gap(self.asked, info) if self.is_gap else self.asked
        return fitted(heeding(self.policy, asked, info), info, calibration)

    @cached_property
    def policy(self) -> UnmaskingPolicy:
        policy = self.resolver.catalog.required(UNMASKING, self.asked)
        num_samples = self.asked.num_samples
        if num_samples > 1 and not self.asked.is_drawn and not policy.is_random:
            raise InputError(
                f"{num_samples} responses at temperature 0 would all be the same; set a "
                "temperature above 0 or unmasking 'random'",
                "temperature",
            )
        return policy

    @cached_property
    def order(self) -> Order | None:
        """What must be built for its constraint, if any. For any thread; not instant."""
        constraint = self.resolver.catalog.chosen(CONSTRAINT, self.params)
        if constraint is None:
            return None
        check_constraint(self.params, self.policy)
        return Order.of(constraint, self.params, self.resolver.predictor, self.salt)

    @property
    def constraint(self) -> Constrained | None:
        """Its constraint, built now unless it was before, which takes seconds at most.
        For any thread. Raises InputError if no answer is short enough.
        """
        if self.order is None:
            return None
        tokens = self.order.built() if self.tokens is None else self.tokens
        policy = self.policy
        return Constrained(
            tokens, self.order, self.params, policy.confidence, policy.confidence_eos_eot_inf
        )


Preparable = SamplingParams | Preparation
"""What is asked of answers, or what was found out of it before."""


@dataclass(frozen=True)
class Resolver:
    """Resolves requests by one catalog, for the loaded models, "target" and possibly
    "judge".
    calibrations: what tells probabilities of scores.
    """

    predictors: Mapping[str, MaskPredictor]
    catalog: Catalog
    calibrations: Calibrations = field(default_factory=Calibrations)

    @property
    def predictor(self) -> MaskPredictor:
        return self.predictors["target"]

    @property
    def prompts(self) -> Prompts:
        return Prompts(self.predictors)

    @cached_property
    def default_settings(self) -> dict[str, JsonValue]:
        """The settings of answers for which nothing is asked."""
        return settings_of_answers(SamplingParams(), self.catalog)

    def prepared(self, params: object, is_gap: bool = False) -> Preparation:
        """Return what prepares a request; None asks for the defaults. Raises InputError
        for what are no params.
        """
        if isinstance(params, Preparation):
            return params if params.is_gap == is_gap else Preparation(self, params.asked, is_gap)
        return Preparation(self, params_of(params, SamplingParams), is_gap)

    def writing(
        self, prompt: GivenPrompt, asked: Preparable, recorded: tuple[Confidence, ...] = ()
    ) -> ResolvedWriting:
        """Return a request for answers. recorded: what their Writing tells besides what
        the scorer reads. Raises InputError for what cannot be.
        """
        prepared = self.prepared(asked, prompt.is_gap)
        params = prepared.params
        self.prompts.check_room(prompt, params.max_tokens)
        controller = self.catalog.required(LENGTH, params)
        writer = Writer(controller, self.catalog.chosen(REVISER, params))
        policy, constraint = prepared.policy, prepared.constraint
        scorer, params = self._scorer(prompt, params)
        if prompt.is_gap:
            check_gap(params, controller, scorer.scorer)
        if params.seed is None:
            params = params.model_copy(update={"seed": drawn_seed()})
        answers = Answers(
            self.predictors,
            self.catalog,
            prompt,
            scorer,
            params,
            prepared.asked,
            lambda: self.default_settings,
        )
        denoiser = Denoiser(
            self.predictor.info,
            policy,
            Noise(0),
            params,
            recorded=tuple({*recorded, *scorer.scorer.recorded}),
            constraint=constraint,
            suffix=prompt.suffix,
            spell=self.predictor.tokenizer.spell,
        )
        calibrated, stopping = self.calibrations.of(answers), self.calibrations.stopping(answers)
        return ResolvedWriting(prompt, params, scorer, calibrated, stopping, writer, denoiser)

    def scoring(
        self,
        prompt: GivenPrompt,
        responses: Sequence[Prompt],
        params: ScoringParams,
        finished: bool | None,
    ) -> ResolvedScoring:
        """Return a request for the scores of given responses."""
        params = fitted(params, self.predictor.info, self.calibrations.named)
        scorer, params = self._scorer(prompt, params)
        texts = self.texts(prompt, responses, params.block_length)
        are_ended = isinstance(responses[0], str) if finished is None else finished
        if are_ended:
            scorer = replace(scorer, end_id=self.prompts.end_id(prompt))
        is_finished = are_ended or all(map(_has_end, texts))
        answers = Answers(
            self.predictors, self.catalog, prompt, scorer, params, is_finished=is_finished
        )
        return ResolvedScoring(prompt, params, scorer, self.calibrations.of(answers), texts)

    def texts(
        self, prompt: GivenPrompt, responses: Sequence[Prompt], block_length: int
    ) -> list[TokenSequence]:
        """Return the texts of given responses."""
        texts = []
        for number, response in enumerate(responses, start=1):
            try:
                texts.append(self.prompts.finished(prompt, response, block_length))
            except InputError as error:
                if len(responses) == 1:
                    raise
                raise error.at(f"candidate {number}") from error
        return texts

    def check_scorer(self, name: str, scorer: Scorer) -> None:
        """Raise InputError unless the model that the scorer asks is loaded."""
        if scorer.asks == "judge" and "judge" not in self.predictors:
            raise InputError(
                f"scorer {name!r} needs an auto-regressive judge; name one with --judge MODEL "
                "(judge=...)",
                "judge",
            )
        if scorer.needs_masks and self.predictor.info.noise == "uniform":
            raise InputError(
                f"scorer {name!r} is about masks, and {self.predictor.info.name!r:.80} "
                "has uniform noise; score with 'dise', 'interleaved' or 'written'",
                "scorer",
            )
        if scorer.asks == "target" and self.predictor.info.is_autoregressive:
            raise InputError(
                f"scorer {name!r} needs a diffusion language model, and "
                f"{self.predictor.info.name!r} is auto-regressive; score with 'ar-perplexity', "
                "or use another model",
                "scorer",
            )

    def _scorer(self, prompt: GivenPrompt, params: P) -> tuple[SequenceScorer, P]:
        """Return the scorer that params name, and the params with its selector."""
        scorer = self.catalog.required(SCORER, params)
        self.check_scorer(scorer_name := name_of(params.scorer), scorer)
        name = name_of(params.selector or scorer.default_selector)
        selector = self.catalog.chosen(SELECTOR, params)
        selector = selector or self.catalog.selector(name, params.selector_settings)
        # The report costs a pass that what is known from the writing does not.
        is_reported = not scorer.needs_writing or "logprobs" in params.model_fields_set
        top_logprobs = params.logprobs if is_reported else None
        translation = self.prompts.translation(prompt)
        bound = SequenceScorer(scorer, selector, top_logprobs, translation, scorer_name)
        return bound, params.model_copy(update={"scorer": scorer_name, "selector": name})


def _has_end(sequence: TokenSequence) -> bool:
    return bool(sequence.special.is_end(sequence.response[-1:])[0])
