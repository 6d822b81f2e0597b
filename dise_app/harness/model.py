"""The model "dise" of lm-evaluation-harness: likelihoods from any of our scorers, answers by
denoising.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from tqdm import tqdm

from dise_app.harness.greedy import is_continued_greedily, is_denoised_greedily
from dise_core import LLM, SamplingParams, ScoringParams
from dise_core.arrays import Ids
from dise_core.catalog import Catalog
from dise_core.errors import InputError, TooLongError, did_you_mean
from dise_core.interfaces import Scorer
from dise_core.noise import drawn_seed
from dise_core.params import EngineConfig
from dise_core.plugins import installed_catalog
from dise_core.reading import Plan, gather
from dise_core.records import Fields, Record

log = logging.getLogger(__name__)

T = TypeVar("T")

DRAWING = ("temperature", "top_p", "top_k")
"""Settings of a task's generation that count only if the task sets do_sample."""

LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens")
"""The names that tasks use for the maximum answer length."""

LLADA_NAMES = {"cfg": "cfg_scale", "mc_num": "samples"}
"""Names of settings in LLaDA's own evaluation, with ours."""


class DiseLM(LM):  # type: ignore[misc]
    """A diffusion language model, or with scorer="ar-perplexity" an auto-regressive one, behind the
    harness's interface.

    `--model_args` takes LLM's arguments and the fields of SamplingParams: model=..., scorer=mc,
    selector=response, samples=32 (the scorer's num_samples; LLaDA's mc_num), judge=...,
    block_length=..., tokens_per_step=..., length=..., dtype=... A task's own settings of generation
    (max_gen_toks, temperature, until) take precedence.

    cfg_scale=... (LLaDA's cfg) guides both generation and likelihoods, as in LLaDA's evaluation.
    The scorers mc, mc-llada and mc-dream can be guided; with any other, likelihoods are refused
    while cfg_scale is above 0.

    The second value of `loglikelihood` tells whether greedy decoding would write the continuation:
    for a diffusion language model by LLaDA's rule, one token per forward pass, the surest first;
    for an auto-regressive one from the forward pass that scores. The first wrong token ends the
    check, so most wrong continuations cost a few forward passes, and a right one costs one per
    token. is_check_greedy=False skips the check: the second value is then always False, and a
    warning says so once.
    """

    def __init__(
        self,
        model: str = "countdown",
        *,
        judge: str | None = None,
        samples: int | None = None,
        is_check_greedy: bool = True,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,  # noqa: ARG002
        device: str = "auto",
        **settings: Any,
    ) -> None:
        """Load the model. Raises InputError for unknown settings or a bad scorer.

        batch_size: max_num_seqs, the most sequences in one forward pass; None and "auto" keep its
        default. device: the harness passes cuda:0 by default, which without a GPU means "auto".
        """
        super().__init__()
        if not isinstance(is_check_greedy, bool):
            raise InputError(
                f"is_check_greedy is True or False, not {is_check_greedy!r}", "is_check_greedy"
            )
        settings = _in_our_names(settings if samples is None else {**settings, "samples": samples})
        engine = _engine_options(settings, device, batch_size)
        settings = {name: value for name, value in settings.items() if name not in engine}
        if "samples" in settings:
            more = {"num_samples": settings.pop("samples")}
            settings["scorer_settings"] = {**settings.get("scorer_settings", {}), **more}
        unknown = sorted(set(settings) - set(SamplingParams.model_fields))
        if unknown:
            hint = did_you_mean(unknown[0], SamplingParams.model_fields)
            raise InputError(f"there is no setting {unknown[0]!r}{hint}", unknown[0])
        self._settings = {"logprobs": None, **settings}
        sampling = self._sampling({})
        self._seed = sampling.seed
        catalog = installed_catalog()
        self._scoring = _guided(sampling, catalog)
        self._scorer = catalog.scorer(self._scoring.scorer, self._scoring.scorer_settings)
        self._cfg_scale = sampling.cfg_scale
        self._is_check_greedy = is_check_greedy
        self._has_warned = False
        self._llm = LLM(model, judge=judge, catalog=catalog, **engine)
        self._tokenizer = self._llm.predictor.tokenizer

    @property
    def tokenizer_name(self) -> str:
        """The model's name, which the harness uses as a key of its cache."""
        return self._llm.predictor.info.name.replace("/", "__")

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return the conversation as the model's chat template renders it. Raises InputError if the
        model has none.
        """
        if not self._tokenizer.has_chat_template:
            raise InputError(
                f"model {self._llm.predictor.info.name!r} has no chat template; leave out "
                "--apply_chat_template",
                "chat",
            )
        return self._tokenizer.chat_text(chat_history, add_generation_prompt)

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Return for each continuation the value that `dise rank` ranks by, in nats, and whether
        greedy decoding would write it.

        The value is the log-likelihood if the scorer estimates one, else the score. Raises
        InputError if cfg_scale is set and the scorer cannot be guided.
        """
        self._refuse_unguided()
        if not self._is_check_greedy and not self._has_warned:
            self._has_warned = True
            log.warning(
                "is_check_greedy=False: whether greedy decoding would write a continuation is not "
                "computed, and reported as "
                "False; metrics that count it (acc of loglikelihood tasks, exact_match) mean "
                "nothing"
            )

        def plan_of(context: str, continuation: str) -> Plan[tuple[float, bool]]:
            prompt, response = self._pair(context, continuation)
            return self._judged(self._fitting(prompt, len(response)), response.tolist())

        return self._run("loglikelihood", requests, plan_of, disable_tqdm)

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Return the log-likelihood of each whole text, in nats.

        Raises InputError for a scorer that estimates none, such as DiSE, and if cfg_scale is set
        and the scorer cannot be guided.
        """
        self._refuse_unguided()

        def plan_of(text: str) -> Plan[float]:
            answer = yield from self._llm.planner.score("", text, self._scoring, False)
            score = answer.outputs[0].score
            if score.log_likelihood is None:
                raise InputError(
                    f"scorer {self._scoring.scorer!r} is not a log-likelihood; take "
                    "scorer=mc,selector=response"
                )
            return score.log_likelihood

        return self._run("loglikelihood_rolling", requests, plan_of, disable_tqdm)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return the text of each answer, up to the first of the task's stop texts.

        Repeats of the same request, for a task with repeats, use the seed, the seed + 1 and so on.
        """
        seed, times = self._told_seed(), Counter[str]()

        def plan_of(context: str, asked: Fields) -> Plan[str]:
            params = self._sampling(asked)
            repeat = times[f"{context}\0{asked}"]
            times[f"{context}\0{asked}"] += 1
            params = params.model_copy(update={"seed": (seed + repeat) % 2**64})
            prompt = self._fitting(self._tokenizer.encode(context), params.max_tokens)
            answer = yield from self._llm.planner.generate(prompt, params, False)
            return answer.outputs[0].text

        return self._run("generate_until", requests, plan_of, disable_tqdm)

    def get_model_info(self) -> Record:
        """Return what the harness records with its results: the seed that reproduces its answers,
        None if none was given or drawn.
        """
        return {"dise_seed": self._seed}

    def _told_seed(self) -> int:
        """Return the seed; if none was given, draw one once and log it."""
        if self._seed is None:
            self._seed = drawn_seed()
            log.info(
                "seed %d was drawn; seed=%d in --model_args repeats the answers",
                self._seed,
                self._seed,
            )
        return self._seed

    def _judged(self, prompt: list[int], response: list[int]) -> Plan[tuple[float, bool]]:
        """Return a plan of a continuation's value and of whether greedy decoding would write it."""
        plans: list[Plan[Any]] = [self._llm.planner.score(prompt, response, self._scoring, False)]
        if self._is_check_greedy:
            plans.append(self._is_greedy(prompt, response))
        answer, *is_greedy = yield from gather(*plans)
        return answer.outputs[0].score.rank_value, is_greedy == [True]

    def _is_greedy(self, prompt: list[int], response: list[int]) -> Plan[bool]:
        [text] = self._llm.planner.texts(prompt, [response], self._scoring, False)
        judge = self._llm.planner.translation(prompt, False)
        if self._scorer.asks == "judge" and judge is not None:
            return (yield from is_continued_greedily(judge.of(text)))
        return (
            yield from is_denoised_greedily(text, self._scorer.model_dump().get("cfg_scale", 0.0))
        )

    def _refuse_unguided(self) -> None:
        """Raise InputError if generation is guided and the scorer cannot be."""
        if self._cfg_scale and not _takes_guidance(type(self._scorer)):
            able = [
                name
                for name, entry in sorted(self._llm.catalog.scorers.items())
                if _takes_guidance(entry.cls)
            ]
            raise InputError(
                f"scorer {self._scoring.scorer!r} cannot be guided, so "
                f"cfg_scale={self._cfg_scale} does not reach its "
                f"likelihoods; take one that can ({', '.join(able)}), or leave out cfg_scale",
                "cfg_scale",
            )

    def _run(
        self,
        kind: str,
        requests: Sequence[Instance],
        plan_of: Callable[..., Plan[T]],
        is_silent: bool,
    ) -> list[T]:
        """Return the result of each request's plan, in order; each goes into the harness's cache as
        soon as it is ready.
        """
        values: dict[int, T] = {}
        plans: Iterator[Plan[T]] = (plan_of(*request.args) for request in requests)
        bar = tqdm(total=len(requests), desc=f"Running {kind} requests", disable=is_silent)
        with bar:
            for outcome in self._llm.engine.run(plans):
                value = values[outcome.index] = outcome.unwrap()
                self.cache_hook.add_partial(kind, requests[outcome.index].args, value)
                bar.update()
        return [values[index] for index in range(len(requests))]

    def _pair(self, context: str, continuation: str) -> tuple[Ids, Ids]:
        """Return the ids of both, split as the harness does: white space at the context's end goes
        to the continuation.
        """
        stem = context.rstrip()
        prompt = self._tokenizer.encode(stem)
        whole = self._tokenizer.encode(stem + context[len(stem) :] + continuation)
        return prompt, whole[len(prompt) :]

    def _fitting(self, prompt: Ids, num_more: int) -> list[int]:
        """Return the prompt's ids, cut at the start as needed to leave room for `num_more` tokens.
        Raises TooLongError if these alone exceed the model's limit.
        """
        limit = self._llm.predictor.info.max_length - num_more
        if limit < 0:
            raise TooLongError(
                f"{num_more} tokens are more than the model's limit of "
                f"{self._llm.predictor.info.max_length}"
            )
        if len(prompt) > limit:
            log.warning(
                "a context of %d tokens is cut to its last %d, which leave room for %d more",
                len(prompt),
                limit,
                num_more,
            )
        kept: list[int] = prompt[max(0, len(prompt) - limit) :].tolist()
        return kept

    def _sampling(self, asked: Fields) -> SamplingParams:
        """Return the params of an answer; the task's settings take precedence over the model's."""
        stops = asked.get("until") or ()
        settings = {
            **self._settings,
            "stop": tuple(s for s in ([stops] if isinstance(stops, str) else stops) if s),
        }
        lengths = [asked[name] for name in LENGTHS if asked.get(name) is not None]
        if lengths:
            settings["max_tokens"] = lengths[0]
        if asked.get("do_sample"):
            settings |= {name: asked[name] for name in DRAWING if name in asked}
        elif asked.get("do_sample") is False:
            settings["temperature"] = 0.0
        return SamplingParams(**settings)


def _in_our_names(settings: Fields) -> Record:
    """Return the settings with LLaDA's names replaced by ours. Raises InputError if both names of
    one setting are given.
    """
    found = dict(settings)
    for theirs, ours in LLADA_NAMES.items():
        if theirs in found and ours in found:
            raise InputError(
                f"{theirs} and {ours} are two names of one setting; give one of them", theirs
            )
        if theirs in found:
            found[ours] = found.pop(theirs)
    return found


def _engine_options(settings: Fields, device: str, batch_size: int | str | None) -> Record:
    """Return the engine's options: those among the settings, and those that the harness's own
    arguments imply.
    """
    options: Record = {"device": device}
    if device.startswith("cuda") and not torch.cuda.is_available():
        log.warning("there is no GPU for device %s; the model runs on the CPU", device)
        options["device"] = "auto"
    if (num_seqs := _num_seqs(batch_size)) is not None:
        options["max_num_seqs"] = num_seqs
    return options | {
        name: settings[name] for name in EngineConfig.model_fields if name in settings
    }


def _num_seqs(batch_size: int | str | None) -> int | None:
    """Return the batch size as a number, or None for "auto" or None. Raises InputError for anything
    else.
    """
    text = str(batch_size)
    if batch_size is None or text.startswith("auto"):
        return None
    if not text.isdecimal() or int(text) == 0:
        raise InputError(
            f"batch_size={batch_size!r}: it is a number from 1 on, or auto", "batch_size"
        )
    return int(text)


def _takes_guidance(scorer: type[Scorer]) -> bool:
    return "cfg_scale" in scorer.model_fields


def _guided(sampling: SamplingParams, catalog: Catalog) -> ScoringParams:
    """Return the params of likelihoods: with generation's guidance, if the scorer can be guided and
    its settings do not say otherwise.
    """
    settings = dict(sampling.scorer_settings)
    entry = catalog.scorers.get(sampling.scorer)
    if sampling.cfg_scale and entry is not None and _takes_guidance(entry.cls):
        settings.setdefault("cfg_scale", sampling.cfg_scale)
    return ScoringParams.of(sampling).model_copy(update={"scorer_settings": settings})
