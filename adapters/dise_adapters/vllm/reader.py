"""A vLLM engine in this process, or in child processes for a model on several devices."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import torch

from dise_adapters.families.family import Checkpoint
from dise_adapters.local.loading.fits import weigh
from dise_adapters.vllm.families import refuse_unrunnable
from dise_adapters.vllm.options import VllmOptions
from dise_adapters.vllm.own_tokens import OwnLogProbs, OwnTokensReader
from dise_adapters.vllm.wire import TextQuestion, Vector, VectorReader
from dise_core import Causal, CheckpointError, EngineConfig, InputError, ModelError, Reader
from dise_core.errors import error_line
from dise_core.records import Record

FORMATS = ("safetensors", "auto", "dummy", "fastsafetensors", "runai_streamer", "bitsandbytes")
"""The load_format of vLLM that reads safetensors, or nothing."""

NEVER = {"trust_remote_code": (False, None), "load_format": FORMATS}
"""Arguments of vLLM that could run what a checkpoint brings, and harmless values."""


def open_vllm_reader(checkpoint: Checkpoint, config: EngineConfig) -> Reader:
    """Return a reader on a new vLLM engine. Raises InputError for a GGUF file or if vLLM
    is not installed, ModelError if it cannot start.
    """
    if checkpoint.is_gguf:
        raise InputError("GGUF files need the transformers engine", "engine")
    refuse_unrunnable(checkpoint.family, checkpoint.attention, str(checkpoint.folder))
    with _failures(f"cannot load {checkpoint.folder}"):
        weigh(checkpoint)
    if isinstance(checkpoint.attention, Causal):
        return VllmJudgeReader(_engine(checkpoint.folder, config, "generate"))
    return VllmReader(_engine(checkpoint.folder, config, "pooling"))


class VllmReader(VectorReader):
    """Answers Reads of a diffusion model with a ReadingPooler, a request a text."""

    def __init__(self, engine: Any) -> None:
        """engine: a vllm.LLM."""
        super().__init__(int(engine.model_config.get_vocab_size()))
        self._engine = engine
        self._numbers = count()

    def ask(self, questions: list[TextQuestion]) -> list[Vector]:
        from dise_adapters.vllm.inside.pooler import pooling_params

        engine = self._engine.llm_engine
        names = [f"dise{next(self._numbers)}" for _ in questions]
        vectors: dict[str, Vector] = {}
        with _failures():
            try:
                for name, text in zip(names, questions, strict=True):
                    prompt = {"type": "token", "prompt_token_ids": text.token_ids}
                    engine.add_request(name, prompt, pooling_params(text.reads))
                while engine.has_unfinished_requests():
                    for output in engine.step():
                        vectors[output.request_id] = output.outputs.data.numpy()
            except BaseException:
                engine.abort_request(names)  # or the next read would hear their answers
                raise
        return [vectors[name] for name in names]


class VllmJudgeReader(OwnTokensReader):
    """Answers Reads of an auto-regressive model from vLLM's prompt_logprobs."""

    def __init__(self, engine: Any) -> None:
        """engine: a vllm.LLM."""
        from vllm import SamplingParams

        self._engine = engine
        self._params = SamplingParams(
            max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False
        )

    def ask(self, texts: list[list[int]]) -> Iterator[OwnLogProbs]:
        prompts = [{"prompt_token_ids": token_ids} for token_ids in texts]
        with _failures():
            outputs = self._engine.generate(prompts, self._params, use_tqdm=False)
        for token_ids, output in zip(texts, outputs, strict=True):
            pairs = zip(token_ids[1:], output.prompt_logprobs[1:], strict=True)
            yield [math.nan, *(entries[token_id].logprob for token_id, entries in pairs)]


@contextmanager
def _failures(problem: str = "the vLLM engine failed") -> Iterator[None]:
    """Turn whatever is raised into a ModelError of one line."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise ModelError(f"{problem}: {error_line(error):.500}") from error


def _engine(folder: Path, config: EngineConfig, runner: str) -> Any:
    options = llm_options(config, runner)
    for name, value in _environment(options["tensor_parallel_size"]).items():
        os.environ.setdefault(name, value)
    try:
        import vllm
    except ImportError as error:
        raise InputError("engine 'vllm' needs vLLM 0.32: see docs/vllm.md", "engine") from error
    with _failures(f"vLLM cannot load {folder}"):
        return vllm.LLM(model=str(folder), **options)


def _environment(num_ranks: int) -> dict[str, str]:
    """Return vLLM's variables for a model on that many devices: they keep its log off
    standard output, and on a CPU its KV cache small, as diffusion models use none.
    """
    variables = {
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0" if num_ranks == 1 else "1",
    }
    if not torch.cuda.is_available():
        threads = "nobind" if num_ranks == 1 else "|".join(map(str, range(num_ranks)))
        variables |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": threads}
    return variables


def llm_options(config: EngineConfig, runner: str) -> Record:
    """Return the arguments of vLLM's LLM. Raises InputError for unsafe ones."""
    settings = VllmOptions(**config.own)
    for name, allowed in NEVER.items():
        if (value := settings.vllm_options.get(name, allowed[0])) not in allowed:
            raise InputError(
                f"vllm_options.{name}={value!r:.40}: a checkpoint's code never runs and only "
                "safetensors are read; leave it out",
                "vllm_options",
            )
    has_gpu = torch.cuda.is_available()
    options: Record = {
        "runner": runner,
        "dtype": config.dtype if config.dtype != "auto" else "bfloat16" if has_gpu else "float32",
        "skip_tokenizer_init": True,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_batch_tokens,
        "disable_log_stats": True,
        "trust_remote_code": False,
        "load_format": "safetensors",
    }
    if not has_gpu:
        options |= {"enforce_eager": True, "hf_overrides": {"head_dtype": "model"}}
    return options | settings.vllm_options
