"""Turns a user's request into a plan: checks it, looks up its strategies, builds the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dise_core.arrays import Ids
from dise_core.constraints.constrained import Constrained
from dise_core.constraints.constraint import Constraint
from dise_core.constraints.orders import Order
from dise_core.errors import InputError
from dise_core.front.answers import AnswerMaker
from dise_core.front.calibrated import Answers, Calibrations
from dise_core.front.model_limits import check_constraint, check_gap, check_tokens, fitted, in_gap
from dise_core.front.outputs import RequestOutput
from dise_core.models.inputs import check_choice, check_list
from dise_core.models.predictor import MaskPredictor
from dise_core.models.prompts import GivenPrompt, Prompt, Prompts, Translation
from dise_core.models.tokenizer import FunctionTool, Message
from dise_core.noise import Noise, drawn_seed
from dise_core.params.requests import SamplingParams, ScoringParams
from dise_core.plans.cost import count_cost
from dise_core.plans.plan import Plan, gather, salted
from dise_core.plans.readouts import Confidence
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.kinds import CONSTRAINT, REVISER
from dise_core.scoring.account import Explainer
from dise_core.scoring.calibration import Calibration
from dise_core.scoring.scorer import Scorer
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.sequence import TokenSequence
from dise_core.writing.denoise import Denoiser
from dise_core.writing.generation import Generation
from dise_core.writing.memory import memory_of
from dise_core.writing.policy import UnmaskingPolicy
from dise_core.writing.waves import in_waves
from dise_core.writing.writer import Writer

P = TypeVar("P", bound=ScoringParams)


@dataclass(frozen=True, slots=True)
class Planner:
    """Turns requests into plans. A plan checks its request before its first read. predictors: the
    loaded models, "target" and possibly "judge". calibrations: what tells probabilities of scores.
    explains: whether outputs have an `explanation` of their score.
    """

    predictors: Mapping[str, MaskPredictor]
    catalog: Catalog
    calibrations: Calibrations = field(default_factory=Calibrations)
    explains: bool = False

    @property
    def predictor(self) -> MaskPredictor:
        return self.predictors["target"]

    @property
    def calibration(self) -> Calibration | None:
        """The calibration that the user named."""
        return self.calibrations.named

    @property
    def _prompts(self) -> Prompts:
        return Prompts(self.predictors)

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams,
        chat: bool | None = None,
        recorded: tuple[Confidence, ...] = (),
    ) -> Plan[RequestOutput]:
        """Return a plan of the responses to one prompt, best score first. recorded: the confidences
        that their Writing tells besides those that the scorer reads.
        """
        return (yield from self._generate(self._prompts.read(prompt, chat), params, recorded))

    def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams,
        tools: Sequence[FunctionTool] = (),
    ) -> Plan[RequestOutput]:
        return (yield from self._generate(self._prompts.conversation(messages, tools), params))

    def fill(self, prefix: Prompt, suffix: Prompt, params: SamplingParams) -> Plan[RequestOutput]:
        """Return a plan of what stands between the two, best score first."""
        return (yield from self._generate(self._prompts.gap(prefix, suffix), params))

    def score(
        self,
        prompt: Prompt,
        response: Prompt,
        params: ScoringParams,
        chat: bool | None = None,
        finished: bool | None = None,
    ) -> Plan[RequestOutput]:
        """Return a plan of the score of a given response; the prompt may be empty. finished:
        whether an end token follows it, which scorers read and none selects; None: if it is a text.
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
        finished: bool | None = None,
    ) -> Plan[RequestOutput]:
        """Return a plan of the candidates, by log-likelihood if estimated, else by score. finished:
        whether an end token follows each, as after the text that `score` reads; None: it does not.
        """
        check_choice(finished, "finished")
        check_list(candidates, "candidates", "a list of texts or of token ids")
        if len(candidates) == 0:
            raise InputError("no candidate given", "candidates")
        given = self._prompts.read_or_none(prompt, chat)
        return (yield from self._evaluate(given, candidates, params, bool(finished)))

    def texts(
        self,
        prompt: Prompt,
        responses: Sequence[Prompt],
        params: ScoringParams,
        chat: bool | None = None,
    ) -> list[TokenSequence]:
        """Return the texts that `score` would score, for several scorers."""
        given = self._prompts.read_or_none(prompt, chat)
        params = fitted(params, self.predictor.info)
        return self._finished(given, responses, params.block_length)

    def _finished(
        self, prompt: GivenPrompt, responses: Sequence[Prompt], block_length: int
    ) -> list[TokenSequence]:
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
        return self._prompts.end_id(self._prompts.read_or_none(prompt, chat))

    def translation(self, prompt: Prompt, chat: bool | None = None) -> Translation | None:
        """Return how the judge reads texts with that prompt; None if no judge is loaded."""
        return self._prompts.translation(self._prompts.read_or_none(prompt, chat))

    def prompt_ids(self, prompt: Prompt, chat: bool | None = None) -> Ids:
        """Return the prompt's token ids as the model reads them, int64 [P]."""
        return self._prompts.read(prompt, chat).ids

    def check_scorer(self, name: str, scorer: Scorer) -> None:
        """Raise InputError, which names the scorer, unless the model that it asks is loaded."""
        if scorer.asks == "judge" and "judge" not in self.predictors:
            problem = f"scorer {name!r} needs an auto-regressive judge"
            raise InputError(f"{problem}; name one with --judge MODEL (judge=...)", "judge")
        if scorer.asks == "target" and self.predictor.info.is_autoregressive:
            problem = f"scorer {name!r} needs a diffusion language model"
            reason = f"{self.predictor.info.name!r} is auto-regressive"
            advice = "score with 'ar-perplexity', or use another model"
            raise InputError(f"{problem}, and {reason}; {advice}", "scorer")

    def _evaluate(
        self,
        prompt: GivenPrompt,
        responses: Sequence[Prompt],
        params: ScoringParams,
        finished: bool | None,
    ) -> Plan[RequestOutput]:
        params = self._fitted(params)
        scorer, params = self._scorer(prompt, params)
        are_ended = isinstance(responses[0], str) if finished is None else finished
        if are_ended:
            scorer = replace(scorer, end_id=self._prompts.end_id(prompt))
        sequences = self._finished(prompt, responses, params.block_length)
        is_finished = are_ended or all(map(_has_end, sequences))
        answers = self._answers(prompt, scorer, params, is_finished=is_finished)
        scored = gather(*(scorer.evaluate(sequence) for sequence in sequences))
        evaluations, cost = yield from count_cost(salted(scored, params.cache_salt))
        generations = [Generation(*pair) for pair in zip(sequences, evaluations, strict=True)]
        maker = AnswerMaker(self.predictor, self.calibrations.of(answers))
        return maker.given(prompt, generations, params, cost)

    def _generate(
        self, prompt: GivenPrompt, params: SamplingParams, recorded: tuple[Confidence, ...] = ()
    ) -> Plan[RequestOutput]:
        asked = params
        if prompt.is_gap:
            params = in_gap(params, self.predictor.info)
        self._prompts.check_room(prompt, params.max_tokens)
        params = self._fitted(params)
        check_tokens(params, self.predictor.info)
        if params.seed is None:
            params = params.model_copy(update={"seed": drawn_seed()})
        controller = self.catalog.length_controller(params.length or "", params.length_settings)
        writer = Writer(controller, self.catalog.chosen(REVISER, params))
        policy = self._policy(params)
        constraint = self._constrained(params, policy)
        scorer, params = self._scorer(prompt, params)

        if prompt.is_gap:
            check_gap(params, controller, scorer.scorer)
        info, kinds = self.predictor.info, tuple({*recorded, *scorer.scorer.recorded})

        def sample(number: int) -> Plan[Generation]:
            noise = Noise.for_request(params.seed or 0, prompt.ids, number)
            denoiser = Denoiser(
                info,
                policy,
                noise,
                params,
                number,
                recorded=kinds,
                constraint=constraint,
                suffix=prompt.suffix,
                memory=memory_of(info, params, constraint is not None and constraint.is_told),
            )
            return writer.write(prompt.ids, denoiser, scorer)

        answers = self._answers(prompt, scorer, params, asked)
        stopping = self.calibrations.stopping(answers, params)
        at_once = params.num_samples if constraint is None else constraint.at_once
        samples = salted(in_waves(sample, params, stopping, at_once), params.cache_salt)
        generations, cost = yield from count_cost(samples)
        json = constraint if constraint is not None and constraint.is_json else None
        maker = AnswerMaker(self.predictor, self.calibrations.of(answers), json)
        return maker.written(prompt, generations, params, cost)

    def _fitted(self, params: P) -> P:
        params = fitted(params, self.predictor.info)
        return params if self.calibration is None else self.calibration.applied(params)

    def prepare(self, params: SamplingParams) -> None:
        """Build what the constraint of a request needs, if it has one: it is kept, so that plans
        need not wait. For any thread; takes seconds at most, and a moment where it is built
        already. Raises what the plan would raise.
        """
        if params.constraint is not None:
            params = self._fitted(params)
            self._constrained(params, self._policy(params))

    def order(self, params: SamplingParams) -> Order | None:
        """Return what must be built for the constraint of a request, if it has one. For any thread;
        takes a moment. Raises what the plan would raise, as far as can be known before.
        """
        params = self._fitted(params)
        constraint = self._constraint(params, self._policy(params))
        if constraint is None:
            return None
        model = self.predictor.info, self.predictor.tokenizer
        return Order.of(constraint, params, *model, self.predictor.tells_among)

    def _constrained(self, params: SamplingParams, policy: UnmaskingPolicy) -> Constrained | None:
        constraint = self._constraint(params, policy)
        if constraint is None:
            return None
        model = self.predictor.info, self.predictor.tokenizer
        return Constrained.by(
            constraint, params, policy.confidence, *model, self.predictor.tells_among
        )

    def _constraint(self, params: SamplingParams, policy: UnmaskingPolicy) -> Constraint | None:
        constraint = self.catalog.chosen(CONSTRAINT, params)
        if constraint is not None:
            check_constraint(params, policy)
        return constraint

    def _policy(self, params: SamplingParams) -> UnmaskingPolicy:
        policy = self.catalog.unmasking_policy(params.unmasking, params.unmasking_settings)
        if params.num_samples > 1 and params.temperature == 0 and not policy.is_random:
            problem = f"{params.num_samples} responses at temperature 0 would all be the same"
            advice = "set a temperature above 0 or unmasking 'random'"
            raise InputError(f"{problem}; {advice}", "temperature")
        return policy

    def _scorer(self, prompt: GivenPrompt, params: P) -> tuple[SequenceScorer, P]:
        scorer = self.catalog.scorer(params.scorer, params.scorer_settings)
        self.check_scorer(params.scorer, scorer)
        name = params.selector or scorer.default_selector
        params = params.model_copy(update={"selector": name})
        selector = self.catalog.selector(name)
        translation = self._prompts.translation(prompt)
        # The report costs a pass that what is known from the writing does not.
        is_reported = not scorer.needs_writing or "logprobs" in params.model_fields_set
        reported = params.logprobs if is_reported else None
        tokenizers = {role: predictor.tokenizer for role, predictor in self.predictors.items()}
        explainer = Explainer(tokenizers, name) if self.explains else None
        bound = SequenceScorer(
            scorer, selector, reported, translation, params.scorer, explainer=explainer
        )
        return bound, params

    def _answers(
        self,
        prompt: GivenPrompt,
        scorer: SequenceScorer,
        scoring: ScoringParams,
        params: SamplingParams | None = None,
        is_finished: bool = True,
    ) -> Answers:
        """Return what calibrations are asked about. params: of written answers, as asked for."""
        judge = self.predictors["judge"].info.name if "judge" in self.predictors else ""
        return Answers(
            self.predictor, self.catalog, prompt, scorer, scoring, judge, params, is_finished
        )


def _has_end(sequence: TokenSequence) -> bool:
    return bool(sequence.special.is_end(sequence.response[-1:])[0])
