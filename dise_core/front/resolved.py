"""What a request comes to: once for all its prompts, and for one, which makes its answer."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from itertools import repeat

import numpy as np

from dise_core.constraints.constrained import Constrained
from dise_core.constraints.orders import Order
from dise_core.constraints.tokens import TokenAutomaton
from dise_core.engine.caller import CALLER_SALT
from dise_core.errors import InputError
from dise_core.front.fields import Field, JsonAnswer
from dise_core.front.model_limits import check_constraint, fitted, heeding, in_gap
from dise_core.front.outputs import CompletionOutput, RequestOutput, Token, Usage
from dise_core.history import Writing
from dise_core.models.pieces import pieces
from dise_core.models.predictor import MaskPredictor
from dise_core.models.prompts import GivenPrompt
from dise_core.noise import Noise
from dise_core.params.objects import name_of
from dise_core.params.requests import SamplingParams, ScoringParams
from dise_core.plans.cost import Cost, count_cost
from dise_core.plans.plan import Plan, gather, salted
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.kinds import CONSTRAINT, UNMASKING
from dise_core.scoring.calibration import Calibration
from dise_core.scoring.explaining import Explanation, explain
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.sequence import TokenSequence
from dise_core.writing.denoise import Denoiser
from dise_core.writing.generation import Generation
from dise_core.writing.memory import memory_of
from dise_core.writing.policy import UnmaskingPolicy
from dise_core.writing.revisions import Revision
from dise_core.writing.waves import in_waves
from dise_core.writing.writer import Writer


@dataclass
class Preparation:
    """What the params of a request come to, whatever its prompts are: found out when it
    is first asked, and then kept for all of them, but for the constraint, which would
    fill the memory until the last of many prompts is done. calibration: that the user
    named. tokens: what was built before of its constraint. salt: of whoever asks, who
    shares what is built with no other salt.
    """

    predictor: MaskPredictor
    catalog: Catalog
    calibration: Calibration | None
    asked: SamplingParams
    is_gap: bool = False
    tokens: TokenAutomaton | None = None
    salt: str = field(default_factory=CALLER_SALT.get)

    @cached_property
    def params(self) -> SamplingParams:
        """The params as they apply to the model."""
        info = self.predictor.info
        asked = in_gap(self.asked, info) if self.is_gap else self.asked
        return fitted(heeding(self.policy, asked, info), info, self.calibration)

    @cached_property
    def policy(self) -> UnmaskingPolicy:
        policy = self.catalog.required(UNMASKING, self.asked)
        num_samples = self.asked.num_samples
        is_random = policy.is_random or self.predictor.info.writes_canvases
        if num_samples > 1 and not self.asked.is_drawn and not is_random:
            raise InputError(
                f"{num_samples} responses at temperature 0 would all be the same; set a "
                "temperature above 0 or unmasking 'random'",
                "temperature",
            )
        return policy

    @cached_property
    def order(self) -> Order | None:
        """What must be built for its constraint, if any. For any thread; not instant."""
        constraint = self.catalog.chosen(CONSTRAINT, self.params)
        if constraint is None:
            return None
        check_constraint(self.params, self.policy)
        return Order.of(constraint, self.params, self.predictor, self.salt)

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


@dataclass(frozen=True, slots=True)
class Resolved(ABC):
    """A request about one prompt, with the objects that its params name. params: as they
    apply to the model; asked: of what is written, before that; None for given texts.
    is_finished: whether the texts end. calibration: what tells probabilities of its
    scores; uncalibrated: why the one that the user named does not.
    """

    predictors: Mapping[str, MaskPredictor]
    catalog: Catalog
    prompt: GivenPrompt
    params: ScoringParams
    scorer: SequenceScorer
    _: KW_ONLY
    asked: SamplingParams | None = None
    is_finished: bool = True
    calibration: Calibration | None = None
    uncalibrated: str | None = None

    @property
    def predictor(self) -> MaskPredictor:
        return self.predictors["target"]

    @abstractmethod
    def plan(self) -> Plan[RequestOutput]:
        """Return a plan of its answer."""

    def _answer(
        self, generations: Sequence[Generation], cost: Cost, max_outputs: int | None = None
    ) -> RequestOutput:
        """Return the responses, best score first. Ties keep their order."""
        ranked = sorted(
            enumerate(generations), key=lambda pair: -pair[1].evaluation.score.rank_value
        )[:max_outputs]
        prompt = self.prompt
        num_given = len(prompt.ids) + len(prompt.suffix)
        num_written = sum(len(generation.sequence.text_positions) for _, generation in ranked)
        num_cached = min(num_given, cost.reused)
        return RequestOutput(
            prompt.text,
            tuple(prompt.ids.tolist()),
            self.predictor.info.name,
            tuple(self._output(index, generation) for index, generation in ranked),
            Usage(num_given, num_written, cost.nfe, cost.computed, 0.0, num_cached),
            is_approximate=not cost.is_exact,
            suffix=prompt.suffix_text,
        )

    def _output(self, index: int, generation: Generation) -> CompletionOutput:
        sequence, calibration = generation.sequence, self.calibration
        writing = sequence.own_writing()
        value = generation.evaluation.score.value
        return CompletionOutput(
            text=self.predictor.tokenizer.decode(sequence.ids[sequence.text_positions]),
            token_ids=tuple(sequence.response.tolist()),
            finish_reason=None,
            score=generation.evaluation.score,
            scorer=self.scorer.name,
            selector=name_of(self.params.selector or ""),
            tokens=self._tokens(generation, None if self.params.logprobs is None else writing),
            index=index,
            trace=generation.trace,
            stopped_by=generation.stopped_by,
            probability=None if calibration is None else calibration.probability(value),
            abstained=None if calibration is None else calibration.abstains(value),
            uncalibrated=self.uncalibrated,
            writing=writing,
            explanation=self._explanation(generation),
        )

    def _explanation(self, generation: Generation) -> Explanation | None:
        if (transcripts := generation.evaluation.transcripts) is None:
            return None
        tokenizer = self.predictor.tokenizer
        return explain(transcripts, self.scorer, generation.sequence, tokenizer)

    def _tokens(self, generation: Generation, writing: Writing | None) -> tuple[Token, ...]:
        sequence, report = generation.sequence, generation.evaluation.tokens
        response = sequence.response_positions
        selected = sequence.mask_of(generation.evaluation.score.positions)[response]
        is_end = sequence.special.is_end(sequence.response)
        text_of = self.predictor.tokenizer.token_text
        texts = iter(pieces(self.predictor.tokenizer, sequence.response[~is_end]))
        rows: Iterable[tuple[float | None, list[int], list[float]]] = repeat((None, [], []))
        if report is not None:
            reported = (report.logprobs, report.top_ids, report.top_logprobs)
            rows = zip(*(column.tolist() for column in reported), strict=True)
        written_logprobs: Iterable[float | None] = repeat(None)
        if writing is not None:
            values = writing.logprobs[response].tolist()
            written_logprobs = (None if math.isnan(value) else value for value in values)
        columns = (column.tolist() for column in (sequence.response, selected, is_end))
        return tuple(
            Token(
                token_id,
                text_of(token_id) if end else next(texts),
                logprob,
                is_selected,
                end,
                tuple(zip(ids, logprobs, strict=True)),
                tuple(map(text_of, ids)),
                value,
            )
            for token_id, is_selected, end, (logprob, ids, logprobs), value in zip(
                *columns, rows, written_logprobs, strict=False
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedScoring(Resolved):
    """A request for the scores of given texts."""

    texts: Sequence[TokenSequence]

    def plan(self) -> Plan[RequestOutput]:
        scored = gather(*map(self.scorer.evaluate, self.texts))
        evaluations, cost = yield from count_cost(salted(scored, self.params.cache_salt))
        return self._answer(list(map(Generation, self.texts, evaluations)), cost)


@dataclass(frozen=True, slots=True)
class ResolvedWriting(Resolved):
    """A request for answers. denoiser: of any answer. stopping: what makes probabilities
    of the scores that `stop_at` is compared with.
    """

    params: SamplingParams
    _: KW_ONLY
    asked: SamplingParams
    writer: Writer
    denoiser: Denoiser
    stopping: Calibration | None = None

    def plan(self) -> Plan[RequestOutput]:
        params, constraint = self.params, self.denoiser.constraint
        at_once = params.num_samples if constraint is None else constraint.at_once
        samples = in_waves(self._written, params, self.stopping, at_once)
        generations, cost = yield from count_cost(salted(samples, params.cache_salt))
        answer = self._answer(generations, cost, params.n)
        outputs = tuple(
            self._finish(output, generations[output.index]) for output in answer.outputs
        )
        return replace(answer, outputs=outputs, cache=params.cache, seed=params.seed)

    def _written(self, number: int) -> Plan[Generation]:
        """Return a plan of the answer of that number."""
        noise = Noise.for_request(self.params.seed or 0, self.prompt.ids, number)
        memory = memory_of(self.denoiser.info, self.params, len(self.prompt.ids))
        denoiser = replace(self.denoiser, sample=number, noise=noise, memory=memory)
        return self.writer.write(self.prompt.ids, denoiser, self.scorer)

    def _finish(self, output: CompletionOutput, generation: Generation) -> CompletionOutput:
        """Return an output with what only written ones have, up to a stop text."""
        params, text = self.params, output.text
        stops = [start for stop in params.stop if (start := text.find(stop)) >= 0]
        return replace(
            output,
            text=text[: min(stops, default=len(text))],
            finish_reason="stop" if stops else self._finish_reason(generation),
            length_controller=name_of(params.length),
            reviser=None if params.reviser is None else name_of(params.reviser),
            revisions=tuple(map(self._revision, generation.revisions)),
            fields=self._fields(generation.sequence, output),
        )

    def _finish_reason(self, generation: Generation) -> str:
        sequence = generation.sequence
        has_end = len(sequence.text_positions) < len(sequence.response)
        # What meets a constraint is whole, even where no room was left for an end token.
        is_whole = has_end or self.denoiser.constraint is not None
        return generation.finish_reason or ("stop" if is_whole else "length")

    def _fields(self, text: TokenSequence, output: CompletionOutput) -> Mapping[str, Field]:
        """Return the fields, by the report's log-probabilities, else the writing's."""
        tokens, writing = output.tokens, output.writing
        json = self.denoiser.constraint
        if json is None or not json.is_json or writing is None:
            return {}
        response = text.response_positions
        written = writing.logprobs[response]
        logprobs = np.array([token.logprob for token in tokens], np.float64)
        logprobs = np.where(np.isnan(logprobs), written, logprobs)
        pieces = ["" if token.is_end else token.text for token in tokens]
        answer = JsonAnswer(json.tokens.automaton, pieces, logprobs, writing.forced[response])
        return answer.fields(self.calibration)

    def _revision(self, revision: Revision) -> Revision:
        text_of = self.predictor.tokenizer.token_text
        tokens = tuple(
            token._replace(
                old_text=text_of(token.old),
                new_text=None if token.new is None else text_of(token.new),
            )
            for token in revision.tokens
        )
        return replace(revision, tokens=tokens)
