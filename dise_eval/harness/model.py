"""The model "dise" of lm-evaluation-harness."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from tqdm import tqdm

from dise_core import LLM, SamplingParams, ScoringParams
from dise_core.arrays import Ids
from dise_core.errors import InputError, TooLongError
from dise_core.noise import drawn_seed
from dise_core.params.objects import name_of
from dise_core.plans.plan import Plan, gather
from dise_core.plans.readouts import DRAWING
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.discovery import installed_catalog
from dise_core.plugins.kinds import SCORER
from dise_core.scoring.scorer import Scorer
from dise_eval.harness.greedy import is_continued_greedily, is_denoised_greedily

log = logging.getLogger(__name__)

T = TypeVar("T")

LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens")

LLADA_NAMES = {"cfg": "cfg_scale", "mc_num": "samples"}


class DiseLM(LM):  # type: ignore[misc]
    """A diffusion language model, or with scorer="ar-perplexity" an auto-regressive one,
    behind the harness's interface.

    `--model_args` takes LLM's arguments and the fields of SamplingParams: model=...,
    scorer=mc, selector=response, samples=32 (the scorer's num_samples; LLaDA's mc_num),
    judge=..., block_length=..., tokens_per_step=..., length=..., dtype=... A task's own
    settings of generation (max_gen_toks, temperature, until) take precedence.

    cfg_scale guides both generation and likelihoods. The second value of `loglikelihood`
    tells whether greedy decoding would write the continuation; is_check_greedy=False
    skips that check. docs/evaluation.md says what both cost.
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

        batch_size: max_num_seqs, the most sequences in one forward pass; None and "auto"
        keep its default. device: the harness passes cuda:0 by default, which without a
        GPU means "auto".
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
            of_scorer = settings.get("scorer_settings", {})
            settings["scorer_settings"] = of_scorer | {"num_samples": settings.pop("samples")}
        self._settings = {"logprobs": None, **settings}
        sampling = self._sampling({})
        self._seed = sampling.seed
        catalog = installed_catalog()
        self._scoring = _guided(sampling, catalog)
        self._scorer = catalog.required(SCORER, self._scoring)
        self._cfg_scale = sampling.cfg_scale
        self._is_check_greedy = is_check_greedy
        self._has_warned = False
        self._llm = LLM(model, judge=judge, catalog=catalog, **engine)
        self._tokenizer = self._llm.predictor.tokenizer

    @property
    def tokenizer_name(self) -> str:
        return self._llm.predictor.info.name.replace("/", "__")

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        if not self._tokenizer.has_chat_template:
            raise InputError(
                f"Model {self._llm.predictor.info.name!r} has no chat template: leave out "
                "--apply_chat_template.",
                "chat",
            )
        return self._tokenizer.chat_text(chat_history, add_generation_prompt)

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Return for each continuation the value that `dise rank` ranks by, in nats, and
        whether greedy decoding would write it.

        Raises InputError if cfg_scale is set and the scorer cannot be guided.
        """
        self._refuse_unguided()
        if not self._is_check_greedy and not self._has_warned:
            self._has_warned = True
            log.warning(
                "is_check_greedy=False: whether greedy decoding would write a continuation is not "
                "computed, and reported as False; metrics that count it (acc of loglikelihood "
                "tasks, exact_match) mean nothing"
            )

        def plan_of(context: str, continuation: str) -> Plan[tuple[float, bool]]:
            prompt, response = self._pair(context, continuation)
            return self._judged(self._fitting(prompt, len(response)), response.tolist())

        return self._run("loglikelihood", requests, plan_of, disable_tqdm)

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Return the log-likelihood of each whole text, in nats.

        Raises InputError for a scorer that estimates none, such as DiSE, and if cfg_scale
        is set and the scorer cannot be guided.
        """
        self._refuse_unguided()

        def plan_of(text: str) -> Plan[float]:
            answer = yield from self._llm.planner.score("", text, self._scoring, False)
            score = answer.outputs[0].score
            if score.log_likelihood is None:
                raise InputError(
                    f"The scores of {self._scoring.scorer!r} are no log-likelihoods: take "
                    "scorer=mc,selector=response."
                )
            return score.log_likelihood

        return self._run("loglikelihood_rolling", requests, plan_of, disable_tqdm)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return the text of each answer, up to the first of the task's stop texts.

        Repeats of the same request, for a task with repeats, use the seed, the seed + 1
        and so on.
        """
        seed, times = self._known_seed(), Counter[str]()

        def plan_of(context: str, task: Mapping[str, Any]) -> Plan[str]:
            params = self._sampling(task)
            repeat = times[f"{context}\0{task}"]
            times[f"{context}\0{task}"] += 1
            params = params.model_copy(update={"seed": (seed + repeat) % 2**64})
            prompt = self._fitting(self._tokenizer.encode(context), params.max_tokens)
            answer = yield from self._llm.planner.generate(prompt, params, False)
            return answer.outputs[0].text

        return self._run("generate_until", requests, plan_of, disable_tqdm)

    def get_model_info(self) -> dict[str, int | None]:
        """Return what the harness records: the seed that repeats answers, if known."""
        return {"dise_seed": self._seed}

    def _known_seed(self) -> int:
        """Return the seed; if none was given, draw one once and log it."""
        if self._seed is None:
            self._seed = drawn_seed()
            log.info("seed=%d was drawn; in --model_args it repeats the answers", self._seed)
        return self._seed

    def _judged(self, prompt: list[int], response: list[int]) -> Plan[tuple[float, bool]]:
        score: Plan[Any] = self._llm.planner.score(prompt, response, self._scoring, False)
        answer, is_greedy = yield from gather(score, self._is_greedy(prompt, response))
        return answer.outputs[0].score.rank_value, is_greedy

    def _is_greedy(self, prompt: list[int], response: list[int]) -> Plan[bool]:
        if not self._is_check_greedy:
            return False
        [text] = self._llm.planner.texts(prompt, [response], self._scoring, False)
        judge = self._llm.planner.translation(prompt, False)
        if self._scorer.asks == "judge" and judge is not None:
            return (yield from is_continued_greedily(judge.of(text)))
        cfg_scale = self._scorer.model_dump().get("cfg_scale", 0.0)
        return (yield from is_denoised_greedily(text, cfg_scale))

    def _refuse_unguided(self) -> None:
        if self._cfg_scale and not _takes_guidance(type(self._scorer)):
            scorers = sorted(self._llm.catalog.scorers.items())
            able = [name for name, entry in scorers if _takes_guidance(entry.load())]
            raise InputError(
                f"scorer {self._scoring.scorer!r} cannot be guided, so cfg_scale={self._cfg_scale} "
                f"does not reach its likelihoods; take one that can ({', '.join(able)}), or leave "
                "out cfg_scale",
                "cfg_scale",
            )

    def _run(
        self,
        request_type: str,
        requests: Sequence[Instance],
        plan_of: Callable[..., Plan[T]],
        is_silent: bool,
    ) -> list[T]:
        """Return the results in order; each enters the harness's cache when ready."""
        values: dict[int, T] = {}
        plans = (plan_of(*request.args) for request in requests)
        with tqdm(
            total=len(requests), desc=f"Running {request_type} requests", disable=is_silent
        ) as bar:
            for outcome in self._llm.engine.run(plans):
                value = values[outcome.index] = outcome.unwrap()
                self.cache_hook.add_partial(request_type, requests[outcome.index].args, value)
                bar.update()
        return [values[index] for index in range(len(requests))]

    def _pair(self, context: str, continuation: str) -> tuple[Ids, Ids]:
        """Return the ids of both. White space between them goes to the continuation."""
        stem = context.rstrip()
        prompt = self._tokenizer.encode(stem)
        ids = self._tokenizer.encode(stem + context[len(stem) :] + continuation)
        return prompt, ids[len(prompt) :]

    def _fitting(self, prompt: Ids, num_more: int) -> list[int]:
        """Return the prompt's ids, cut at the start to leave room for num_more."""
        max_length = self._llm.predictor.info.max_length
        limit = max_length - num_more
        if limit < 0:
            raise TooLongError(f"{num_more} tokens are more than the model's limit of {max_length}")
        if len(prompt) > limit:
            log.warning(
                "a context of %d tokens is cut to its last %d, which leave room for %d more",
                *(len(prompt), limit, num_more),
            )
        ids: list[int] = prompt[max(0, len(prompt) - limit) :].tolist()
        return ids

    def _sampling(self, task: Mapping[str, Any]) -> SamplingParams:
        """Return the params of an answer. The task's settings precede the model's."""
        stops = task.get("until") or ()
        stops = [stops] if isinstance(stops, str) else stops
        settings = {**self._settings, "stop": tuple(filter(None, stops))}
        lengths = [task[name] for name in LENGTHS if task.get(name) is not None]
        if lengths:
            settings["max_tokens"] = lengths[0]
        if task.get("do_sample"):
            settings |= {name: task[name] for name in DRAWING if name in task}
        elif task.get("do_sample") is False:
            settings["temperature"] = 0.0
        return SamplingParams(**settings)


def _in_our_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in our names. Raises InputError for one given twice."""
    for theirs, ours in LLADA_NAMES.items():
        if theirs in settings and ours in settings:
            raise InputError(
                f"{theirs} and {ours} are two names of one setting: give one of them.", theirs
            )
    return {LLADA_NAMES.get(name, name): value for name, value in settings.items()}


def _engine_options(
    settings: Mapping[str, Any], device: str, batch_size: int | str | None
) -> dict[str, Any]:
    options: dict[str, Any] = {"device": device}
    if device.startswith("cuda") and not torch.cuda.is_available():
        log.warning("there is no GPU for device %s; the model runs on the CPU", device)
        options["device"] = "auto"
    if batch_size is not None and not str(batch_size).startswith("auto"):
        if not str(batch_size).isdecimal() or int(batch_size) == 0:
            raise InputError(
                f"batch_size is a number from 1 on, or auto, not {batch_size!r}.", "batch_size"
            )
        options["max_num_seqs"] = int(batch_size)
    names = settings.keys() & installed_catalog().option_names()
    return options | {name: settings[name] for name in names}


def _takes_guidance(scorer: type[Scorer]) -> bool:
    return "cfg_scale" in scorer.model_fields


def _guided(sampling: SamplingParams, catalog: Catalog) -> ScoringParams:
    """Return the params of likelihoods, guided as generation if the scorer can be."""
    settings = dict(sampling.scorer_settings)
    entry = catalog.entry(SCORER, name_of(sampling.scorer))
    if sampling.cfg_scale and _takes_guidance(entry.load()):
        settings.setdefault("cfg_scale", sampling.cfg_scale)
    return ScoringParams.of(sampling).model_copy(update={"scorer_settings": settings})
