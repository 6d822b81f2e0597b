"""Turns requests into plans of their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dise_core.arrays import Ids
from dise_core.errors import InputError
from dise_core.front.answers import AnswerMaker, WrittenAnswers
from dise_core.front.calibrated import Calibrations
from dise_core.front.model_limits import fitted
from dise_core.front.outputs import RequestOutput
from dise_core.front.resolving import Asked, ResolvedScoring, ResolvedWriting, Resolver
from dise_core.models.inputs import check_choice, check_list
from dise_core.models.predictor import MaskPredictor
from dise_core.models.prompts import Prompt, Prompts, Translation
from dise_core.models.tokenizer import FunctionTool, Message
from dise_core.params.requests import ScoringParams
from dise_core.plans.cost import count_cost
from dise_core.plans.plan import Plan, gather, salted
from dise_core.plans.readouts import Confidence
from dise_core.plugins.catalog import Catalog
from dise_core.scoring.calibration import Calibration
from dise_core.sequence import TokenSequence
from dise_core.writing.generation import Generation
from dise_core.writing.waves import in_waves


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

    @property
    def resolver(self) -> Resolver:
        """What resolves requests before they are planned."""
        return Resolver(self.predictors, self.catalog, self.calibrations, self.explains)

    def generate(
        self,
        prompt: Prompt,
        asked: Asked,
        chat: bool | None = None,
        recorded: tuple[Confidence, ...] = (),
    ) -> Plan[RequestOutput]:
        """Return a plan of the responses to one prompt, best score first. recorded: the confidences
        that their Writing tells besides those that the scorer reads.
        """
        given, resolver = self._prompts.read(prompt, chat), self.resolver
        request = resolver.writing(given, resolver.prepared(asked), recorded)
        return (yield from self._write(request))

    def chat(
        self, messages: Sequence[Message], asked: Asked, tools: Sequence[FunctionTool] = ()
    ) -> Plan[RequestOutput]:
        given, resolver = self._prompts.conversation(messages, tools), self.resolver
        return (yield from self._write(resolver.writing(given, resolver.prepared(asked))))

    def fill(self, prefix: Prompt, suffix: Prompt, asked: Asked) -> Plan[RequestOutput]:
        """Return a plan of what stands between the two, best score first."""
        given, resolver = self._prompts.gap(prefix, suffix), self.resolver
        prepared = resolver.prepared(asked, is_gap=True)
        return (yield from self._write(resolver.writing(given, prepared)))

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
        return (yield from self._score(self.resolver.scoring(given, [response], params, finished)))

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
        request = self.resolver.scoring(given, candidates, params, bool(finished))
        return (yield from self._score(request))

    def texts(
        self,
        prompt: Prompt,
        responses: Sequence[Prompt],
        params: ScoringParams,
        chat: bool | None = None,
    ) -> list[TokenSequence]:
        """Return the texts that `score` would score, for several scorers."""
        given = self._prompts.read_or_none(prompt, chat)
        block_length = fitted(params, self.predictor.info).block_length
        return self.resolver.texts(given, responses, block_length)

    def end_id(self, prompt: Prompt, chat: bool | None = None) -> int | None:
        return self._prompts.end_id(self._prompts.read_or_none(prompt, chat))

    def translation(self, prompt: Prompt, chat: bool | None = None) -> Translation | None:
        """Return how the judge reads texts with that prompt; None if no judge is loaded."""
        return self._prompts.translation(self._prompts.read_or_none(prompt, chat))

    def prompt_ids(self, prompt: Prompt, chat: bool | None = None) -> Ids:
        """Return the prompt's token ids as the model reads them, int64 [P]."""
        return self._prompts.read(prompt, chat).ids

    def _score(self, request: ResolvedScoring) -> Plan[RequestOutput]:
        scored = gather(*map(request.scorer.evaluate, request.texts))
        evaluations, cost = yield from count_cost(salted(scored, request.params.cache_salt))
        generations = [Generation(*pair) for pair in zip(request.texts, evaluations, strict=True)]
        return AnswerMaker(self.predictor, request).given(generations, cost)

    def _write(self, request: ResolvedWriting) -> Plan[RequestOutput]:
        def sample(number: int) -> Plan[Generation]:
            denoiser = request.denoiser(number)
            return request.writer.write(request.prompt.ids, denoiser, request.scorer)

        samples = in_waves(sample, request.params, request.stopping, request.at_once)
        written = salted(samples, request.params.cache_salt)
        generations, cost = yield from count_cost(written)
        return WrittenAnswers(self.predictor, request).written(generations, cost)
