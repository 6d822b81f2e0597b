"""A vLLM engine in this process, or in child processes where the model is spread over several devices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dise_adapters.reader import Alignment
from dise_adapters.vllm.own_tokens import check_own_tokens
from dise_adapters.vllm.wire import to_wire, unpack
from dise_core.arrays import Ids
from dise_core.errors import InputError, ModelError
from dise_core.params import EngineConfig
from dise_core.reading import Read, Reading, Row, distinct_rows

TASK = "token_classify"
"""The pooling task of the reading models; see pooler.py."""

DEFAULTS = {
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Environment of vLLM: standard output is for answers."""

CPU_DEFAULTS = {"VLLM_CPU_KVCACHE_SPACE": "1"}
"""The same on a CPU: no key is ever cached for these models."""


def open_vllm_reader(
    folder: Path, config: EngineConfig, alignment: Alignment, gguf_file: str | None = None
) -> VllmReader | VllmJudgeReader:
    """Start a vLLM engine on the checkpoint. Raises InputError without vLLM or for GGUF, ModelError if it cannot start."""
    if gguf_file is not None:
        raise InputError("GGUF files need the transformers engine", "engine")
    kind = VllmJudgeReader if alignment == "causal" else VllmReader
    return kind(_engine(folder, config, "generate" if alignment == "causal" else "pooling"))


class VllmReader:
    """Answers Reads with a reading model; each text is one request."""

    def __init__(self, engine: Any) -> None:
        """engine: a vllm.LLM."""
        from vllm import PoolingParams

        self._engine = engine
        self._params = PoolingParams
        self._vocab_size = int(engine.model_config.get_vocab_size())

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        """Answer the reads in their order. Raises InputError for guidance, ModelError if the engine fails."""
        rows = [row for row in distinct_rows(reads) if any(len(reads[index].positions) for index in row.reads)]
        params = [
            self._params(task=TASK, extra_kwargs={"reads": [to_wire(reads[index]) for index in row.reads]}) for row in rows
        ]
        readings: dict[int, Reading] = {}
        for row, vector in zip(rows, self._vectors(rows, params), strict=True):
            answers = unpack(vector, [reads[index] for index in row.reads], self._vocab_size)
            readings.update(zip(row.reads, answers, strict=True))
        return [
            readings.get(index) or Reading(np.zeros(0, np.int64), np.zeros(0, np.float32)) for index in range(len(reads))
        ]

    def _vectors(self, rows: Sequence[Row], params: Sequence[Any]) -> list[Any]:
        if not rows:
            return []
        prompts = [{"prompt_token_ids": row.token_ids.tolist()} for row in rows]
        try:
            outputs = self._engine.encode(prompts, pooling_params=params, pooling_task=TASK, use_tqdm=False)
        except Exception as error:
            raise ModelError(f"the vLLM engine failed: {_line(error)}") from error
        return [output.outputs.data.numpy() for output in outputs]


class VllmJudgeReader:
    """Answers for an auto-regressive model: the log-probabilities of a text's own tokens, by vLLM's prompt_logprobs."""

    def __init__(self, engine: Any) -> None:
        """engine: a vllm.LLM."""
        from vllm import SamplingParams

        self._engine = engine
        self._params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)

    def read(self, reads: Sequence[Read]) -> list[Reading]:
        """Answer the reads in their order. Raises InputError for anything but a text's own tokens."""
        rows = distinct_rows(reads)
        prompts = [{"prompt_token_ids": row.token_ids.tolist()} for row in rows]
        for read in reads:
            check_own_tokens(read)
        try:
            outputs = self._engine.generate(prompts, self._params, use_tqdm=False)
        except Exception as error:
            raise ModelError(f"the vLLM engine failed: {_line(error)}") from error
        readings: dict[int, Reading] = {}
        for row, output in zip(rows, outputs, strict=True):
            logprobs = own_logprobs(row.token_ids, output.prompt_logprobs)
            for index in row.reads:
                readings[index] = Reading(reads[index].token_ids[reads[index].positions], logprobs[reads[index].positions])
        return [readings[index] for index in range(len(reads))]


def own_logprobs(token_ids: Ids, prompt_logprobs: Sequence[Any]) -> Any:
    """Return float32 [N], NaN at 0, of vLLM's prompt_logprobs: for each token the entry of its own id."""
    rest = zip(token_ids[1:].tolist(), prompt_logprobs[1:], strict=True)
    return np.array([np.nan, *(entries[token_id].logprob for token_id, entries in rest)], dtype=np.float32)


def _engine(folder: Path, config: EngineConfig, runner: str) -> Any:
    """Start vLLM's own LLM."""
    for name, value in _environment(config.tensor_parallel_size).items():
        os.environ.setdefault(name, value)
    try:
        import vllm
    except ImportError as error:
        raise InputError("engine 'vllm' needs vLLM 0.32: see docs/vllm.md", "engine") from error
    options = _options(config, runner)
    try:
        return vllm.LLM(model=str(folder), **options)
    except Exception as error:
        raise ModelError(f"vLLM cannot load {folder}: {_line(error)}") from error


def _environment(num_ranks: int) -> dict[str, str]:
    """Return the defaults of vLLM's environment for a model on that many devices."""
    several = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0" if num_ranks == 1 else "1"}
    if torch.cuda.is_available():
        return DEFAULTS | several
    threads = "nobind" if num_ranks == 1 else "|".join(map(str, range(num_ranks)))
    return DEFAULTS | several | CPU_DEFAULTS | {"VLLM_CPU_OMP_THREADS_BIND": threads}


def _options(config: EngineConfig, runner: str) -> dict[str, Any]:
    has_gpu = torch.cuda.is_available()
    options: dict[str, Any] = {
        "runner": runner,
        "dtype": config.dtype if config.dtype != "auto" else "bfloat16" if has_gpu else "float32",
        "skip_tokenizer_init": True,
        "tensor_parallel_size": config.tensor_parallel_size,
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_batch_tokens,
        "disable_log_stats": True,
    }
    if not has_gpu:
        options |= {"enforce_eager": True, "hf_overrides": {"head_dtype": "model"}}
    return options | config.vllm_options


def _line(error: Exception) -> str:
    """Return an error as one line, without the address of documentation."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
