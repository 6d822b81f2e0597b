"""The verbs of LLM and AsyncLLM: each makes a Job, which one runs and the other awaits."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar, cast, overload

from dise_core.errors import InputError, shown
from dise_core.front.outputs import RequestOutput, Usage
from dise_core.front.planner import Planner
from dise_core.front.resolved import Preparable, Preparation
from dise_core.models.inputs import (
    PromptInput,
    check_choice,
    check_list,
    is_one,
    params_of,
    several,
)
from dise_core.models.predictor import MaskPredictor
from dise_core.models.prompts import Prompt
from dise_core.models.tokenizer import FunctionTool, Message
from dise_core.params.requests import ScoringParams
from dise_core.plans.outcome import Outcome
from dise_core.plans.plan import Plan, numbered
from dise_core.records import Fields

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

Sampling = Preparable | Sequence[Preparable] | None
"""Settings for all prompts, or one for each; None for the defaults."""

OnError = Literal["raise", "return"]
"""raise: the first failed request's error, after all others are done. return: every
request has an answer, and that of a failed one has its `error` and no outputs.
"""


@dataclass(frozen=True)
class Job(Generic[T]):
    """Plans, and what is made of their outcomes, in any order. prepared: what is built
    first of their constraints.
    """

    plans: Sequence[Plan[Any]]
    finish: Callable[[Iterable[Outcome[Any]]], T]
    prepared: Sequence[Preparation] = ()


def results(outcomes: Iterable[Outcome[T]]) -> list[T]:
    """Return the results in the order of the requests, or raise the first one's error."""
    return [outcome.unwrap() for outcome in _in_order(outcomes)]


def _in_order(outcomes: Iterable[Outcome[T]]) -> list[Outcome[T]]:
    return sorted(outcomes, key=lambda outcome: outcome.index)


def one_result(outcomes: Iterable[Outcome[T]]) -> T:
    """Return the only result, or raise its error."""
    [result] = results(outcomes)
    return result


class Verbs(ABC):
    """What a loaded model does with prompts, conversations and responses."""

    @property
    @abstractmethod
    def planner(self) -> Planner:
        """What turns requests into plans for `run`."""

    @abstractmethod
    def do(self, job: Job[T]) -> T:
        """Run a job's plans and return what it makes of them. Raises what it raises."""

    @property
    def predictor(self) -> MaskPredictor:
        return self.planner.predictor

    def generate(
        self,
        prompts: PromptInput,
        params: Sampling = None,
        *,
        sampling_params: Sampling = None,
        chat: bool | None = None,
        explain: bool = False,
        on_error: OnError = "raise",
    ) -> list[RequestOutput]:
        """Return one answer per prompt (a text or token ids), in order; params, which
        vLLM calls sampling_params, apply to all prompts or are a sequence, one per
        prompt.

        A text goes through the model's chat template if it has one (chat=None), always
        (True) or never (False). explain: each output gets an `explanation` of its score.
        on_error: "raise" raises the first failed request's error after all others are
        done; "return" gives it an answer with the `error` and without outputs.
        """
        many = several(prompts, "prompt")
        settings = _prepared(self.planner, len(many), "prompts", params, sampling_params)
        check_choice(chat, "chat")
        planner = replace(self.planner, explains=explain)
        plans = [planner.generate(*pair, chat) for pair in zip(many, settings, strict=True)]
        return self.do(_answers(planner, plans, "prompt", on_error, many, settings))

    def chat(
        self,
        conversations: Sequence[Message] | Sequence[Sequence[Message]],
        params: Sampling = None,
        *,
        sampling_params: Sampling = None,
        tools: Sequence[FunctionTool] = (),
        chat_template_kwargs: Fields | None = None,
        on_error: OnError = "raise",
    ) -> list[RequestOutput]:
        """Return one answer per conversation, a list of {"role", "content"} messages, in
        order.
        tools: functions in OpenAI's format, shown to the model. chat_template_kwargs:
        variables of the model's chat template, as JSON has them. The others: see
        `generate`.
        """
        check_list(conversations, "conversations", "a conversation or a list of them")
        is_single = len(conversations) > 0 and isinstance(conversations[0], Mapping)
        many = cast("Sequence[Sequence[Message]]", [conversations] if is_single else conversations)
        if len(many) == 0:
            raise InputError("no conversation given", "conversations")
        settings = _prepared(self.planner, len(many), "conversations", params, sampling_params)
        plans = [
            self.planner.chat(*pair, tools, chat_template_kwargs)
            for pair in zip(many, settings, strict=True)
        ]
        return self.do(_answers(self.planner, plans, "conversation", on_error, settings=settings))

    def fill(
        self,
        prefixes: PromptInput,
        suffixes: PromptInput,
        params: Sampling = None,
        *,
        sampling_params: Sampling = None,
        on_error: OnError = "raise",
    ) -> list[RequestOutput]:
        """Return what fills each gap, between a prefix, which may be empty, and a suffix,
        in order.

        Both are used as they are, without a chat template, and tokenized apart. An
        output's text, tokens and score are the gap's, and the model has read all three.
        `max_tokens` is the gap's length, or with length "cal" the longest that it may
        have. Raises InputError for a block-causal model. params, sampling_params,
        on_error: see `generate`.
        """
        many = several(prefixes, "prefix")
        gaps = _pairs(many, "prefixes", several(suffixes, "suffix"), "suffixes")
        settings = _prepared(self.planner, len(gaps), "gaps", params, sampling_params, is_gap=True)
        pairs = zip(gaps, settings, strict=True)
        plans = [self.planner.fill(*gap, setting) for gap, setting in pairs]
        return self.do(_answers(self.planner, plans, "gap", on_error, many, settings))

    def score(
        self,
        prompts: PromptInput,
        responses: PromptInput,
        params: ScoringParams | None = None,
        *,
        chat: bool | None = None,
        finished: bool | None = None,
        explain: bool = False,
        on_error: OnError = "raise",
    ) -> list[RequestOutput]:
        """Return the score of each response given its prompt, in order: an answer with
        one output, its finish_reason None. explain, on_error: see `generate`.

        Prompts and responses pair up one to one; an empty prompt scores the response
        alone.
        finished: whether a response ends here, so that the scorers read an end token
        after it; None: if it is a text. Token ids are whole as they are.
        """
        many = several(prompts, "prompt")
        pairs = _pairs(many, "prompts", several(responses, "response"), "responses")
        check_choice(chat, "chat")
        check_choice(finished, "finished")
        scoring = params_of(params, ScoringParams)
        planner = replace(self.planner, explains=explain)
        plans = [planner.score(*pair, scoring, chat, finished) for pair in pairs]
        return self.do(_answers(planner, plans, "text", on_error, many))

    @overload
    def rank(  # type: ignore[overload-overlap]
        self,
        prompts: Prompt,
        candidates: Sequence[Prompt],
        params: ScoringParams | None = None,
        *,
        chat: bool | None = None,
        finished: bool | None = None,
    ) -> RequestOutput: ...

    @overload
    def rank(
        self,
        prompts: Sequence[Prompt],
        candidates: Sequence[Sequence[Prompt]],
        params: ScoringParams | None = None,
        *,
        chat: bool | None = None,
        finished: bool | None = None,
    ) -> list[RequestOutput]: ...

    def rank(
        self,
        prompts: PromptInput,
        candidates: Sequence[Prompt] | Sequence[Sequence[Prompt]],
        params: ScoringParams | None = None,
        *,
        chat: bool | None = None,
        finished: bool | None = None,
    ) -> RequestOutput | list[RequestOutput]:
        """Return one prompt's candidates, likeliest first; for several prompts, a list
        with one such answer each. An output's `index` is the candidate's index in the
        argument.

        Candidates are ranked by log-likelihood if the scorer estimates it, else by score.
        finished: whether they end, so that the scorers read an end token after each, as
        `score` does after a text; None: they do not, so that a candidate has another
        score here than there. Raises InputError if prompts and lists of candidates do not
        pair up, or if a list is empty.
        """
        if is_one(prompts):
            pair = cast("Prompt", prompts), cast("Sequence[Prompt]", candidates)
            plan = self.planner.rank(*pair, params_of(params, ScoringParams), chat, finished)
            return self.do(Job[RequestOutput]([plan], one_result))
        check_list(candidates, "candidates", "a list of candidates for each prompt")
        lists = cast("Sequence[Sequence[Prompt]]", candidates)
        many = cast("Sequence[Prompt]", prompts)
        pairs = _pairs(many, "prompts", lists, "lists of candidates", "candidates")
        scoring = params_of(params, ScoringParams)
        plans = [self.planner.rank(*pair, scoring, chat, finished) for pair in pairs]
        return self.do(Job(numbered(plans, "prompt"), results))


def request(
    planner: Planner,
    prompt: Prompt | Sequence[Message],
    params: Preparable | None,
    chat: bool | None,
    suffix: Prompt | None = None,
    tools: Sequence[FunctionTool] = (),
    template_kwargs: Fields | None = None,
) -> Plan[RequestOutput]:
    """Return the plan of a prompt, a conversation, or the gap before a suffix."""
    checked = planner.prepared(params, suffix is not None)
    if suffix is None and not isinstance(prompt, str):
        check_list(prompt, "prompt", "a text, token ids or a conversation")
        if any(isinstance(item, Mapping) for item in prompt):
            turns = cast("Sequence[Message]", prompt)
            return planner.chat(turns, checked, tools, template_kwargs)
    if template_kwargs:
        raise InputError(
            "chat_template_kwargs are for a conversation, and the prompt is none; give a "
            "list of messages, or leave them out",
            "chat_template_kwargs",
        )
    if suffix is not None:
        return planner.fill(cast("Prompt", prompt), suffix, checked)
    return planner.generate(cast("Prompt", prompt), checked, chat)


def _answers(
    planner: Planner,
    plans: list[Plan[RequestOutput]],
    subject: str,
    on_error: OnError,
    prompts: Sequence[object] = (),
    settings: Sequence[Preparation] = (),
) -> Job[list[RequestOutput]]:
    """Return the job of all answers. subject: of each plan. prompts: for failed ones."""
    if on_error not in ("raise", "return"):
        raise InputError(
            f"on_error must be 'raise' or 'return', not {shown(on_error, 40)}", "on_error"
        )
    plans = numbered(plans, subject)
    if on_error == "raise":
        return Job(plans, results, settings)
    model = planner.predictor.info.name

    def answer(outcome: Outcome[RequestOutput]) -> RequestOutput:
        if outcome.error is None:
            return outcome.unwrap()
        prompt = prompts[outcome.index] if prompts else None
        text = prompt if isinstance(prompt, str) else None
        usage = Usage(0, 0, 0, 0.0, outcome.seconds)
        return RequestOutput(text, (), model, (), usage, error=outcome.error)

    return Job(plans, lambda ended: list(map(answer, _in_order(ended))), settings)


def _prepared(
    planner: Planner,
    count: int,
    noun: str,
    params: Sampling,
    sampling_params: Sampling,
    is_gap: bool = False,
) -> list[Preparation]:
    """Return so many preparations, one for all prompts of the same settings. Raises
    InputError for both names of these, or another count.
    """
    if params is not None and sampling_params is not None:
        raise InputError(
            "params and sampling_params are two names for one argument; give one of them",
            "sampling_params",
        )
    params = sampling_params if params is None else params
    settings = [*params] if isinstance(params, list | tuple) else [params] * count
    pairs = _pairs(range(count), noun, settings, "params")
    preparations = {id(item): planner.prepared(item, is_gap) for _, item in pairs}
    return [preparations[id(item)] for _, item in pairs]


def _pairs(
    firsts: Sequence[A], noun: str, seconds: Sequence[B], second_noun: str, parameter: str = ""
) -> list[tuple[A, B]]:
    if len(firsts) != len(seconds):
        raise InputError(
            f"{len(firsts)} {noun} do not pair up with {len(seconds)} {second_noun}",
            parameter or second_noun,
        )
    return list(zip(firsts, seconds, strict=True))
