"""The pooler that answers Reads inside vLLM: it applies the head at the positions asked
for, then the readouts that all engines share.

It runs on every tensor-parallel rank. Each rank holds a part of the vocabulary; the
logits of the rows asked for are gathered from all ranks, rows_at_once rows at a time.
"""

from collections.abc import Sequence, Set
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from vllm import PoolingParams
from vllm.distributed import tensor_model_parallel_all_gather
from vllm.model_executor.layers.pooler import PoolingParamsUpdate
from vllm.model_executor.layers.pooler.abstract import Pooler
from vllm.v1.pool.metadata import PoolingMetadata

from dise_adapters.local.devices import on_device
from dise_adapters.local.reading.reader import rows_at_once
from dise_adapters.local.reading.readouts import ReadoutGroup, group_reads, readings_of
from dise_adapters.vllm.wire import READS, TASK, ReadJson, pack
from dise_core import Candidates, Ids, Read, Reading, TokenLogProbs
from dise_core.models.info import AnswersFor
from dise_core.records import Fields, Record


def pooling_params(reads: list[ReadJson]) -> PoolingParams:
    """Return the parameters of a request that carries the Reads of one text, as a string:
    vLLM copies lists of numbers one by one, which took longer than all else that a
    request needs.
    """
    return PoolingParams(task=TASK, extra_kwargs={"reads": READS.dump_json(reads)})


class ReadingPooler(Pooler):  # type: ignore[misc]
    """Answers the Reads that a request carries in `PoolingParams.extra_kwargs["reads"]`.

    A request without extra_kwargs gets, for each of its N tokens, the token's
    log-probability, the likeliest token at its position and that token's log-probability:
    [N, 3]. A request whose Reads cannot be answered gets one NaN; the other requests of
    the batch are unaffected.
    """

    def __init__(self, model: Any, answers_for: AnswersFor) -> None:
        """model: one with lm_head and logits_processor. answers_for: see Family."""
        super().__init__()
        self._model = (model,)  # not a child, or its weights would be registered twice
        self._shift = 0 if answers_for == "own" else 1
        self._vocab_size = int(model.config.vocab_size)

    def get_supported_tasks(self) -> Set[Any]:
        return {TASK}

    def get_pooling_updates(self, task: Any) -> PoolingParamsUpdate:  # noqa: ARG002
        return PoolingParamsUpdate(requires_token_ids=True)

    def forward(self, hidden_states: Tensor, pooling_metadata: PoolingMetadata) -> list[Tensor]:
        """Return a float32 tensor per request. hidden_states: of all tokens, [T, d]."""
        texts = [
            ids.numpy().astype(np.int64) for ids in pooling_metadata.get_prompt_token_ids_cpu()
        ]
        lengths = pooling_metadata.get_pooling_cursor().num_scheduled_tokens_cpu.tolist()
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        reads_by_text = [
            self._reads(params.extra_kwargs, text)
            for params, text in zip(pooling_metadata.pooling_params, texts, strict=True)
        ]
        # With a shift, row i - 1 answers for position i; position 0 has its own row.
        rows = [
            (read, starts[number] + np.maximum(read.positions - self._shift, 0))
            for number, reads in enumerate(reads_by_text)
            for read in reads
        ]
        readings = iter(self._answer(hidden_states, rows))
        return [
            _tensor(params.extra_kwargs, reads, [next(readings) for _ in reads])
            for params, reads in zip(pooling_metadata.pooling_params, reads_by_text, strict=True)
        ]

    def _reads(self, extra: Record | None, text: Ids) -> list[Read]:
        """Return a request's Reads; none if they cannot be answered."""
        if extra is None:
            everywhere = np.arange(len(text))
            readouts = TokenLogProbs(text), Candidates()
            return [Read(text, everywhere, readout) for readout in readouts]
        try:
            forms = READS.validate_json(extra["reads"], context=self._vocab_size)
            return [form.decoded(text) for form in forms]
        except Exception:  # whatever it is, it must not end the engine for the others
            return []

    def _answer(self, states: Tensor, rows: Sequence[tuple[Read, Ids]]) -> list[Reading]:
        """Return the answers in order. rows: each Read with the rows that answer it."""
        reads = [read for read, _ in rows]
        readings: dict[int, Reading] = {}
        size = rows_at_once(self._vocab_size, states.device)
        shared: dict[bytes, tuple[list[ReadoutGroup], Ids]] = {}
        for group in group_reads(dict(enumerate(reads))):
            places = np.concatenate([rows[index][1] for index in group.indices])
            groups, _ = shared.setdefault(places.tobytes(), ([], places))
            groups.append(group.to(states.device))
        for groups, places in shared.values():  # with the same rows, and so the same logits
            [lines] = on_device(states.device, places)
            logits_of = partial(self._logits, states, lines)
            readings.update(readings_of(groups, reads, size, logits_of))
        return [readings[index] for index in range(len(reads))]

    def _logits(self, states: Tensor, lines: Tensor, rows: slice) -> Tensor:
        [model] = self._model
        local = model.logits_processor(model.lm_head, states[lines[rows]], skip_gather=True)
        if model.lm_head.tp_size > 1:
            local = tensor_model_parallel_all_gather(local)
        logits: Tensor = local[:, : self._vocab_size].float()
        return logits


def _tensor(extra: Fields | None, reads: Sequence[Read], readings: Sequence[Reading]) -> Tensor:
    """Return a request's answer in its own memory: vLLM sends whole storages."""
    if extra is None:
        tokens, best = readings
        columns = [tokens.logprobs, best.token_ids.astype(np.float32), best.logprobs]
        return torch.from_numpy(np.ascontiguousarray(np.stack(columns, axis=1)))
    if not reads:
        return torch.full((1,), torch.nan)
    return torch.from_numpy(pack(reads, readings))
