"""Turns requests into plans of their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dise_core.arrays import Ids
from dise_core.errors import InputError
from dise_core.front.answers import AnswerMaker, WrittenAnswers
from dise_core.front.model_limits import fitted
from dise_core.front.outputs import RequestOutput
from dise_core.front.resolving import Preparable, ResolvedScoring, Resolver
from dise_core.models.inputs import check_choice, check_list
from dise_core.models.predictor import MaskPredictor
from dise_core.models.prompts import GivenPrompt, Prompt, Prompts, Translation
from dise_core.models.tokenizer import FunctionTool, Message
from dise_core.params.requests import ScoringParams
from dise_core.plans.cost import count_cost
from dise_core.plans.plan import Plan, gather, salted
from dise_core.plans.readouts import Confidence
from dise_core.records import Fields
from dise_core.scoring.calibration import Calibration
from dise_core.sequence import TokenSequence
from dise_core.writing.generation import Generation
from dise_core.writing.waves import in_waves


@dataclass(frozen=True, slots=True)
class Planner:
    """Turns requests into plans. A plan resolves its request before its first read.
    explains: whether outputs have an `explanation` of their score.
    """

    resolver: Resolver
    explains: bool = False

    @property
    def predictors(self) -> Mapping[str, MaskPredictor]:
        """The loaded models, "target" and possibly "judge"."""
        return self.resolver.predictors

    @property
    def predictor(self) -> MaskPredictor:
        return self.resolver.predictor

    @property
    def prompts(self) -> Prompts:
        return self.resolver.prompts

    @property
    def calibration(self) -> Calibration | None:
        """The calibration that the user named."""
        return self.resolver.calibrations.named

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
        return (yield from self._write(self.prompts.read(prompt, chat), params, recorded))

    def chat(
        self,
        messages: Sequence[Message],
        params: Preparable,
        tools: Sequence[FunctionTool] = (),
        template_kwargs: Fields | None = None,
    ) -> Plan[RequestOutput]:
        prompt = self.prompts.conversation(messages, tools, template_kwargs)
        return (yield from self._write(prompt, params))

    def fill(self, prefix: Prompt, suffix: Prompt, params: Preparable) -> Plan[RequestOutput]:
        """Return a plan of what stands between the two, best score first."""
        return (yield from self._write(self.prompts.gap(prefix, suffix), params))

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
        given_prompt = self.prompts.read_or_none(prompt, chat)
        request = self.resolver.scoring(given_prompt, [response], params, finished)
        return (yield from self._score(request))

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
        given_prompt = self.prompts.read_or_none(prompt, chat)
        request = self.resolver.scoring(given_prompt, candidates, params, bool(finished))
        return (yield from self._score(request))

    def texts(
        self,
        prompt: Prompt,
        responses: Sequence[Prompt],
        params: ScoringParams,
        chat: bool | None = None,
    ) -> list[TokenSequence]:
        """Return the texts that `score` would score, for several scorers."""
        given_prompt = self.prompts.read_or_none(prompt, chat)
        block_length = fitted(params, self.predictor.info).block_length
        return self.resolver.texts(given_prompt, responses, block_length)

    def end_id(self, prompt: Prompt, chat: bool | None = None) -> int | None:
        return self.prompts.end_id(self.prompts.read_or_none(prompt, chat))

    def translation(self, prompt: Prompt, chat: bool | None = None) -> Translation | None:
        """Return how the judge reads texts with that prompt; None without a judge."""
        return self.prompts.translation(self.prompts.read_or_none(prompt, chat))

    def prompt_ids(self, prompt: Prompt, chat: bool | None = None) -> Ids:
        """Return the prompt's token ids as the model reads them, int64 [P]."""
        return self.prompts.read(prompt, chat).ids

    def _score(self, request: ResolvedScoring) -> Plan[RequestOutput]:
        scorer = replace(request.scorer, explains=self.explains)
        scored = gather(*map(scorer.evaluate, request.texts))
        evaluations, cost = yield from count_cost(salted(scored, request.params.cache_salt))
        generations = [Generation(*pair) for pair in zip(request.texts, evaluations, strict=True)]
        return AnswerMaker(self.predictor, request).make(generations, cost)

    def _write(
        self, prompt: GivenPrompt, params: Preparable, recorded: tuple[Confidence, ...] = ()
    ) -> Plan[RequestOutput]:
        request = self.resolver.writing(prompt, params, recorded)
        scorer = replace(request.scorer, explains=self.explains)

        def sample(number: int) -> Plan[Generation]:
            return request.writer.write(request.prompt.ids, request.denoiser_of(number), scorer)

        samples = in_waves(sample, request.params, request.stopping, request.at_once)
        generations, cost = yield from count_cost(salted(samples, request.params.cache_salt))
        return WrittenAnswers(self.predictor, request).make_written(generations, cost)
