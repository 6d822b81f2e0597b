"""LLM: the main entry point, modelled on vLLM's LLM. AsyncLLM has the same methods."""

import gc
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import Any, Self, TypedDict, TypeVar, Unpack

from dise_core.engine import Engine
from dise_core.errors import ClosedError, InputError, ModelError
from dise_core.front.calibrated import Calibrations
from dise_core.front.in_memory import FromModel, Model
from dise_core.front.outputs import RequestOutput
from dise_core.front.planner import Planner
from dise_core.front.verbs import Job, Verbs, request
from dise_core.models.backend import LoadedModule
from dise_core.models.predictor import MaskPredictor, Shown, unshown
from dise_core.models.prompts import Prompt
from dise_core.models.tokenizer import FunctionTool, Message
from dise_core.params.base import Params
from dise_core.params.engine import DeviceMap, Dtype, EngineConfig, Quantization
from dise_core.params.marks import Mark, marked
from dise_core.params.requests import SamplingParams
from dise_core.plans.outcome import Outcome
from dise_core.plans.plan import Plan
from dise_core.plugins.catalog import Catalog
from dise_core.plugins.discovery import installed_catalog, with_plugins
from dise_core.records import Fields, Record
from dise_core.scoring.calibration import Calibration
from dise_core.threads import choose_threads
from dise_core.writing.canvas import CanvasStream, CanvasUpdate

T = TypeVar("T")


class EngineOptions(TypedDict, total=False):
    """The fields of EngineConfig as keyword arguments."""

    max_num_seqs: int
    max_batch_tokens: int
    device: str
    dtype: Dtype
    device_map: DeviceMap | None
    max_memory: Record
    quantization: Quantization | None
    judge_device: str | None
    judge_dtype: Dtype | None
    attn_implementation: str
    revision: str | None
    adapter: str | None
    lora: str | PathLike[str] | Mapping[str, str | PathLike[str]] | None
    mask_token_id: int | None
    block_size: int | None
    engine: str
    tensor_parallel_size: int
    vllm_options: Record
    max_cache_tokens: int | None
    prefix_cache_tokens: int | None
    calibration: str | PathLike[str] | Calibration | None
    engine_options: Params
    """An object of an engine's `options`: its own, for type checkers, which know no other."""


class LLM(FromModel, Verbs):
    """A loaded diffusion language model that generates responses and scores how sure it
    is of them.

    Examples:
        >>> llm = LLM("countdown")
        >>> [answer] = llm.generate("83,18,75 -> 10", SamplingParams(max_tokens=48))
        >>> answer.outputs[0].score.value  # mean log-probability of the last ten tokens, in nats

        >>> with LLM("countdown") as llm:  # frees the model at the end
        ...     [answer] = llm.generate("83,18,75 -> 10")
    """

    def __init__(
        self,
        model: Model = "countdown",
        *,
        judge: Model | None = None,
        catalog: Catalog | None = None,
        plugins: Sequence[object] = (),
        lazy: bool = False,
        shown: Shown = unshown,
        **options: Unpack[EngineOptions],
    ) -> None:
        """Load a model by name, folder or hub id, or take a loaded one. options: see
        EngineConfig, and `calibration`, a file or a Calibration. judge: an
        auto-regressive model for the scorers that need one; an auto-regressive `model` is
        its own. EngineConfig.for_judge says which options apply to it. plugins: beside
        those of the catalog: classes of strategies, adapters or engines, by their names,
        and modules or objects with hooks. lazy: leave the
        weights to `load`, or to the first request that passes its checks. shown: shows
        how they are loaded.

        Raises InputError for an unknown model, and for models larger than the memory that
        is free, ModelError for one that cannot be loaded, PluginError for one whose name
        two plugins claim.
        """
        choose_threads()
        named_calibration = options.get("calibration")
        calibration = Calibration.of(named_calibration)
        file = fspath(named_calibration) if isinstance(named_calibration, str | PathLike) else None
        fields: Record = {**options, "calibration": file}
        fields |= dict(fields.pop("engine_options", ()))
        self.config = EngineConfig(**fields)
        self.catalog = catalog or installed_catalog()
        if plugins:
            self.catalog = with_plugins(self.catalog, plugins)
        self.catalog.check_engine(self.config)
        if judge is None and (self.config.judge_device or self.config.judge_dtype):
            raise InputError("judge_device and judge_dtype need a judge: name one", "judge")
        self._check_loading(model, judge)
        predictors = self._predictors(model, judge)
        predictor = predictors["target"]
        if calibration is not None:
            calibration.check_model(predictor)
        self._fit(predictors)
        # What comes with a model was fitted without adapters.
        files = () if self.config.loras else predictor.calibration_files
        defaults = tuple(map(Calibration.load, files))
        planner = Planner(predictors, self.catalog, Calibrations(calibration, defaults))
        engine = Engine(predictors, self.config, shown)
        self._open: tuple[Planner, Engine] | None = (planner, engine)
        self._process = os.getpid()
        self._shown = repr(predictor.info.name)
        self._is_loader = isinstance(model, str | PathLike)
        if self._is_loader:
            self._shown += f", engine={self.config.engine!r}, device={self.config.device!r}"
        if not lazy:
            self.load()

    def __repr__(self) -> str:
        return f"LLM({self._shown})"

    @property
    def planner(self) -> Planner:
        return self._parts()[0]

    @property
    def engine(self) -> Engine:
        """What runs the plans."""
        return self._parts()[1]

    def _parts(self) -> tuple[Planner, Engine]:
        if self._open is None:
            raise ClosedError(f"{self!r} is closed; load the model again")
        if self._process != os.getpid():
            # A fork has none of the threads that the model runs on, and may wait for them
            # forever.
            raise ModelError(
                f"{self!r} was loaded in process {self._process}, and this is a fork of it, in "
                "which a model cannot run: load it here, or start processes by spawn"
            )
        return self._open

    def load(self) -> None:
        """Load the weights that are not loaded yet. Raises ModelError if that fails."""
        self.engine.load()

    def update_weights(self, weights: Iterable[tuple[str, Any]]) -> None:
        """Copy tensors over the model's weights, all or some, by the names that
        transformers or the checkpoint give them, and forget what is kept of texts. Its
        own calibrations hold no longer.

        Raises InputError, before any weight is changed, for a name or a shape that the
        model lacks, for one that is quantized, from a GGUF file, on several devices or in
        another process, and beside a calibration that was named.
        """
        planner, engine = self._parts()
        if planner.calibration is not None:
            raise InputError(
                "The calibration is of the old weights: load the model without it.", "calibration"
            )
        self.predictor.update_weights(dict(weights))
        self._open = (replace(planner, calibrations=Calibrations()), engine)

    def close(self) -> None:
        """Free the models that it loaded. After it each method raises ClosedError."""
        self._open = None
        if self._is_loader:
            gc.collect()  # a model may be part of a circle of references

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stream(
        self,
        prompt: Prompt | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        chat: bool | None = None,
        suffix: Prompt | None = None,
        tools: Sequence[FunctionTool] = (),
        chat_template_kwargs: Fields | None = None,
    ) -> Generator[CanvasUpdate | RequestOutput, None, None]:
        """Yield what each denoising step commits, then the answer. Raises what `generate`
        raises. The prompt may be a list of messages. suffix: as in `fill`. tools,
        chat_template_kwargs: as in `chat`. Leaving early cancels the request.
        """
        more = suffix, tools, chat_template_kwargs
        return self.watch(request(self.planner, prompt, params, chat, *more))

    def watch(
        self, plan: Plan[RequestOutput]
    ) -> Generator[CanvasUpdate | RequestOutput, None, None]:
        """Yield what each denoising step of a plan commits, then the answer."""
        request = self.engine.request(plan)
        canvases, reads = CanvasStream(self.predictor), None
        try:
            request.start()
            while not request.is_finished:
                # Some of them wait for a later step where not all fit into one.
                if request.reads is not reads:
                    reads = request.reads
                    yield from canvases.updates(reads)
                self.engine.step([request])
        finally:
            request.close()
        if request.error is not None:
            raise request.error
        yield request.result

    def do(self, job: Job[T]) -> T:
        return job.finish(self.run(job.plans))

    def run(self, plans: Iterable[Plan[T]]) -> Iterator[Outcome[T]]:
        """Yield the outcome of each plan as it ends, a failure too."""
        return self.engine.run(plans)

    def _predictors(self, model: Model, judge: Model | None) -> dict[str, MaskPredictor]:
        predictors = {"target": self._opened(model, self.config)}
        if judge is not None:
            predictors["judge"] = judging = self._opened(judge, self.config.for_judge())
            if not judging.info.is_autoregressive:
                raise InputError(f"judge {judging.info.name!r} is not auto-regressive", "judge")
        elif predictors["target"].info.is_autoregressive:
            predictors["judge"] = predictors["target"]
        return predictors

    def _fit(self, predictors: dict[str, MaskPredictor]) -> None:
        """Make sure that the models fit into memory together; note the type that "auto" means."""
        target, *judges = dict.fromkeys(predictors.values())
        if (dtype := target.fit(judges)) is not None:
            self.config = self.config.model_copy(update={"dtype": dtype})
        for predictor in judges:
            predictor.fit()

    def _check_loading(self, model: object, judge: object) -> None:
        """Raise InputError for options of loading beside models that are loaded."""
        is_judge_loaded = isinstance(judge, MaskPredictor)
        options = {"judge_device", "judge_dtype"} if is_judge_loaded else set[str]()
        unheeded = options & self.config.model_dump(exclude_defaults=True).keys()
        if isinstance(model, MaskPredictor):
            options = self.catalog.loading_options(self.config)
            needs_judge = judge is not None and not is_judge_loaded  # it takes the others
            own = marked(EngineConfig, Mark.NOT_THE_JUDGES)
            unheeded |= options & own if needs_judge else options
        for option in sorted(unheeded):
            raise InputError(
                f"{option} is about how a model is loaded, and this one is loaded: leave "
                "it out, or give the model by its name",
                option,
            )

    def _opened(self, model: object, config: EngineConfig) -> MaskPredictor:
        if isinstance(model, str | PathLike):
            return self.catalog.load_model(fspath(model), config)
        if isinstance(model, LoadedModule):
            return self.catalog.backend(config.engine).hold(model)
        if not isinstance(model, MaskPredictor):
            raise InputError(
                f"a model is a name, a folder or a MaskPredictor, not {type(model).__name__}",
                "model",
            )
        return model
