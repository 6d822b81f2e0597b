"""A vLLM engine in this process, or in child processes for a model on several devices."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import torch

from dise_adapters.families.family import Checkpoint
from dise_adapters.local.weighing import weigh
from dise_adapters.vllm.families import refuse_unrunnable
from dise_adapters.vllm.own_tokens import OwnLogProbs, read_own_tokens
from dise_adapters.vllm.wire import Question, Vector, read_texts
from dise_core.backend import Reader
from dise_core.errors import CheckpointError, InputError, ModelError, error_line
from dise_core.model import Causal
from dise_core.params import EngineConfig
from dise_core.reading import Read, Reading
from dise_core.records import Record

DEFAULTS = {
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Environment variables for vLLM, which among others keep its log off standard output."""

FORMATS = ("safetensors", "auto", "dummy", "fastsafetensors", "runai_streamer", "bitsandbytes")
"""The load_format of vLLM that reads safetensors, or nothing."""

NEVER = {"trust_remote_code": (False, None), "load_format": FORMATS}
"""The arguments of vLLM that could run what a checkpoint brings, and their harmless values."""

CPU_DEFAULTS = {"VLLM_CPU_KVCACHE_SPACE": "1"}
"""Further ones on a CPU: diffusion models cache no keys in vLLM, so its KV cache is small."""


def open_vllm_reader(checkpoint: Checkpoint, config: EngineConfig) -> VllmReader | VllmJudgeReader:
    """Return a reader on a new vLLM engine. Raises InputError for a GGUF file or if vLLM is not
    installed, ModelError if it cannot start.
    """
    if checkpoint.gguf_file is not None:
        raise InputError("GGUF files need the transformers engine", "engine")
    refuse_unrunnable(checkpoint.family, checkpoint.attention, str(checkpoint.folder))
    with _failures(f"cannot load {checkpoint.folder}"):
        weigh(checkpoint)
    if isinstance(checkpoint.attention, Causal):
        return VllmJudgeReader(_engine(checkpoint.folder, config, "generate"))
    return VllmReader(_engine(checkpoint.folder, config, "pooling"))


class VllmReader(Reader):
    """Answers Reads of a diffusion model with a ReadingPooler; each text is one request."""

    def __init__(self, engine: Any) -> None:
        """engine: a vllm.LLM."""
        self._engine = engine
        self._numbers = count()
        self._vocab_size = int(engine.model_config.get_vocab_size())

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        """Return the answers in the order of the reads. Raises InputError for guidance, ModelError
        if the engine fails.
        """
        return read_texts(reads, self._vocab_size, self._ask)

    def _ask(self, questions: list[Question]) -> list[Vector]:
        names = [f"dise{next(self._numbers)}" for _ in questions]
        with _failures():
            try:
                return self._run(names, questions)
            except BaseException:
                self._engine.llm_engine.abort_request(
                    names
                )  # or the next read would hear their answers
                raise

    def _run(self, names: list[str], questions: list[Question]) -> list[Vector]:
        from dise_adapters.vllm.asked import pooling_params

        engine = self._engine.llm_engine
        for name, (token_ids, asked, _) in zip(names, questions, strict=True):
            engine.add_request(
                name, {"type": "token", "prompt_token_ids": token_ids}, pooling_params(asked)
            )
        vectors: dict[str, Vector] = {}
        while engine.has_unfinished_requests():
            vectors.update(
                (output.request_id, output.outputs.data.numpy()) for output in engine.step()
            )
        return [vectors[name] for name in names]


class VllmJudgeReader(Reader):
    """Answers Reads of an auto-regressive model: the log-probabilities of a text's own tokens, from
    vLLM's prompt_logprobs.
    """

    def __init__(self, engine: Any) -> None:
        """engine: a vllm.LLM."""
        from vllm import SamplingParams

        self._engine = engine
        self._params = SamplingParams(
            max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False
        )

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        return read_own_tokens(reads, self._ask)

    def _ask(self, texts: list[list[int]]) -> Iterator[OwnLogProbs]:
        prompts = [{"prompt_token_ids": token_ids} for token_ids in texts]
        with _failures():
            outputs = self._engine.generate(prompts, self._params, use_tqdm=False)
        for token_ids, output in zip(texts, outputs, strict=True):
            rest = zip(token_ids[1:], output.prompt_logprobs[1:], strict=True)
            yield [entries[token_id].logprob for token_id, entries in rest]


@contextmanager
def _failures(what: str = "the vLLM engine failed") -> Iterator[None]:
    """Turn whatever is raised into a ModelError of one line."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise ModelError(f"{what}: {error_line(error):.500}") from error


def _engine(folder: Path, config: EngineConfig, runner: str) -> Any:
    """Return a new vllm.LLM. Raises InputError if vLLM is not installed, ModelError if it fails."""
    options = llm_options(config, runner)
    for name, value in _environment(config.tensor_parallel_size).items():
        os.environ.setdefault(name, value)
    try:
        import vllm
    except ImportError as error:
        raise InputError("engine 'vllm' needs vLLM 0.32: see docs/vllm.md", "engine") from error
    try:
        return vllm.LLM(model=str(folder), **options)
    except Exception as error:
        raise ModelError(f"vLLM cannot load {folder}: {error_line(error):.500}") from error


def _environment(num_ranks: int) -> dict[str, str]:
    """Return the default environment variables of vLLM for a model on that many devices."""
    several = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0" if num_ranks == 1 else "1"}
    if torch.cuda.is_available():
        return DEFAULTS | several
    threads = "nobind" if num_ranks == 1 else "|".join(map(str, range(num_ranks)))
    return DEFAULTS | several | CPU_DEFAULTS | {"VLLM_CPU_OMP_THREADS_BIND": threads}


def llm_options(config: EngineConfig, runner: str) -> Record:
    """Return the arguments of vLLM's LLM. Raises InputError for one that runs a checkpoint's code
    or unpickles its weights.
    """
    for name, allowed in NEVER.items():
        if config.vllm_options.get(name, allowed[0]) not in allowed:
            value = config.vllm_options[name]
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
        "tensor_parallel_size": config.tensor_parallel_size,
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_batch_tokens,
        "disable_log_stats": True,
        "trust_remote_code": False,
        "load_format": "safetensors",
    }
    if not has_gpu:
        options |= {"enforce_eager": True, "hf_overrides": {"head_dtype": "model"}}
    return options | config.vllm_options
