"""Turns requests into plans of their answers: checks them, looks up what they name, and
applies the model's limits. After that no name is looked up, and nothing is rewritten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pydantic import BaseModel

from dise_core.arrays import Ids
from dise_core.errors import InputError
from dise_core.front.calibrated import Calibrations
from dise_core.front.model_limits import check_gap, fitted, with_own_policy
from dise_core.front.outputs import RequestOutput
from dise_core.front.resolved import Preparable, Preparation, ResolvedScoring, ResolvedWriting
from dise_core.models.inputs import check_choice, check_list, params_of
from dise_core.models.predictor import MaskPredictor
from dise_core.models.prompts import GivenPrompt, Prompt, Prompts, Translation
from dise_core.models.tokenizer import FunctionTool, Message
from dise_core.noise import Noise, drawn_seed
from dise_core.params.objects import name_of
from dise_core.params.requests import SamplingParams, ScoringParams
from dise_core.plans.plan import Plan
from dise_core.plans.readouts import Confidence
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.kinds import LENGTH, REVISER, SCORER, SELECTOR
from dise_core.records import Fields
from dise_core.scoring.calibration import Calibration
from dise_core.scoring.scorer import Scorer
from dise_core.scoring.sequence_scorer import SequenceScorer
from dise_core.sequence import TokenSequence
from dise_core.writing.denoise import Denoiser
from dise_core.writing.writer import Writer

M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound=ScoringParams)


@dataclass(frozen=True, slots=True)
class Planner:
    """Turns requests into plans by one catalog, for the loaded models, "target" and
    possibly "judge". A plan resolves its request before its first read. calibrations:
    what tells probabilities of scores. explains: whether outputs have an `explanation` of
    their score.
    """

    predictors: Mapping[str, MaskPredictor]
    catalog: Catalog
    calibrations: Calibrations = field(default_factory=Calibrations)
    explains: bool = False

    @property
    def predictor(self) -> MaskPredictor:
        return self.predictors["target"]

    @property
    def prompts(self) -> Prompts:
        return Prompts(self.predictors)

    @property
    def calibration(self) -> Calibration | None:
        """The calibration that the user named."""
        return self.calibrations.named

    def generate(
        self,
        prompt: Prompt,
        params: Preparable,
        chat: bool | None = None,
        recorded: tuple[Confidence, ...] = (),
    ) -> Plan[RequestOutput]:
        """Return a plan of the responses to one prompt, best score first. recorded: the
        confidences that their Writing tells besides those that the scorer reads.
        """
        text = self.prompts.read(prompt, chat)
        return (yield from self.writing(text, params, recorded).plan())

    def chat(
        self,
        messages: Sequence[Message],
        params: Preparable,
        tools: Sequence[FunctionTool] = (),
        template_kwargs: Fields | None = None,
    ) -> Plan[RequestOutput]:
        prompt = self.prompts.conversation(messages, tools, template_kwargs)
        return (yield from self.writing(prompt, params).plan())

    def fill(self, prefix: Prompt, suffix: Prompt, params: Preparable) -> Plan[RequestOutput]:
        """Return a plan of what stands between the two, best score first."""
        return (yield from self.writing(self.prompts.gap(prefix, suffix), params).plan())

    def score(
        self,
        prompt: Prompt,
        response: Prompt,
        params: ScoringParams,
        chat: bool | None = None,
        finished: bool | None = None,
    ) -> Plan[RequestOutput]:
        """Return a plan of the score of a given response; the prompt may be empty.
        finished: whether an end token follows it, which scorers read and none selects;
        None: if it is a text.
        """
        check_choice(finished, "finished")
        is_ended = isinstance(response, str) if finished is None else finished
        return (yield from self._scoring(prompt, [response], params, chat, is_ended).plan())

    def rank(
        self,
        prompt: Prompt,
        candidates: Sequence[Prompt],
        params: ScoringParams,
        chat: bool | None = None,
        finished: bool | None = None,
    ) -> Plan[RequestOutput]:
        """Return a plan of the candidates, by log-likelihood if estimated, else by score.
        finished: whether an end token follows each, as after the text that `score` reads;
        None: it does not.
        """
        check_choice(finished, "finished")
        check_list(candidates, "candidates", "a list of texts or of token ids")
        if len(candidates) == 0:
            raise InputError("no candidate given", "candidates")
        return (yield from self._scoring(prompt, candidates, params, chat, bool(finished)).plan())

    def texts(
        self,
        prompt: Prompt,
        responses: Sequence[Prompt],
        params: ScoringParams,
        chat: bool | None = None,
    ) -> list[TokenSequence]:
        """Return the texts that `score` would score, for several scorers."""
        text = self.prompts.read_or_none(prompt, chat)
        return self._texts(text, responses, fitted(params, self.predictor.info).block_length)

    def end_id(self, prompt: Prompt, chat: bool | None = None) -> int | None:
        return self.prompts.end_id(self.prompts.read_or_none(prompt, chat))

    def translation(self, prompt: Prompt, chat: bool | None = None) -> Translation | None:
        """Return how the judge reads texts with that prompt; None without a judge."""
        return self.prompts.translation(self.prompts.read_or_none(prompt, chat))

    def prompt_ids(self, prompt: Prompt, chat: bool | None = None) -> Ids:
        """Return the prompt's token ids as the model reads them, int64 [P]."""
        return self.prompts.read(prompt, chat).ids

    def own(self, params: M) -> M:
        """Return the params with the model's own unmasking policy where they name none."""
        return with_own_policy(params, self.predictor.info)

    def check(self, params: BaseModel) -> None:
        """Raise InputError for an unknown strategy or wrong settings."""
        self.catalog.check(self.own(params))

    def prepared(self, params: object, is_gap: bool = False) -> Preparation:
        """Return what prepares a request; None asks for the defaults. Raises InputError
        for what are no params.
        """
        if isinstance(params, Preparation):
            assert params.is_gap == is_gap, "who prepares a request knows of its suffix"
            return params
        models = self.predictor, self.catalog, self.calibration
        return Preparation(*models, self.own(params_of(params, SamplingParams)), is_gap)

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
        if params.seed is None and not self.predictor.info.writes_canvases:
            params = params.model_copy(update={"seed": drawn_seed()})
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
        objects = self.predictors, self.catalog, prompt, params, scorer
        request = ResolvedWriting(*objects, asked=prepared.asked, writer=writer, denoiser=denoiser)
        stopping = self.calibrations.stopping(request)
        return replace(self.calibrations.applied(request), stopping=stopping)

    def _scoring(
        self,
        prompt: Prompt,
        responses: Sequence[Prompt],
        params: ScoringParams,
        chat: bool | None,
        are_ended: bool,
    ) -> ResolvedScoring:
        """Return a request for the scores of given responses."""
        text = self.prompts.read_or_none(prompt, chat)
        params = fitted(params, self.predictor.info, self.calibration)
        scorer, params = self._scorer(text, params)
        texts = self._texts(text, responses, params.block_length)
        if are_ended:
            scorer = replace(scorer, end_id=self.prompts.end_id(text))
        objects = self.predictors, self.catalog, text, params, scorer
        is_finished = are_ended or all(map(_has_end, texts))
        request = ResolvedScoring(*objects, is_finished=is_finished, texts=texts)
        return self.calibrations.applied(request)

    def _texts(
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
        if scorer.needs_uniform_noise and self.predictor.info.noise != "uniform":
            raise InputError(
                f"scorer {name!r} is about uniform noise, and {self.predictor.info.name!r:.80} "
                "was trained on masks; score with 'dise', 'interleaved' or 'written'",
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
        bound = SequenceScorer(
            scorer, selector, top_logprobs, translation, scorer_name, explains=self.explains
        )
        return bound, params.model_copy(update={"scorer": scorer_name, "selector": name})


def _has_end(sequence: TokenSequence) -> bool:
    return bool(sequence.special.is_end(sequence.response[-1:])[0])
