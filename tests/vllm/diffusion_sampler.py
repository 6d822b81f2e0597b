"""vLLM's own sampler and request states of DiffusionGemma, cut out of its file, which a CPU does
not import: what the sampler answers to logits that are given.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from vllm.v1.outputs import LogprobsTensors

CUT = {
    "_compute_num_rejected", "_concat_logprob_stashes", "_mask_rows_to_allowed",
    "_denoise_temperature", "_compiled_sample_step", "sample_row_stats_reference",
    "_MASKED_LOGIT", "_NO_PENALTIES_STATE", "DiffusionGemmaRequestStates", "DiffusionSampler",
}  # fmt: skip
SLOT, NUM_STEPS, WIDTH = 2, 48, 8


class _Buffer:
    """vLLM's memory that a GPU sees, on a CPU."""

    def __init__(self, count: int, dtype: torch.dtype) -> None:
        self.gpu = torch.zeros(count, dtype=dtype)
        self.np = self.gpu.numpy()

    def copy_to_uva(self) -> None:
        pass


def _scores(logits: torch.Tensor, num_top: int, sampled: torch.Tensor, **more: Any) -> Any:
    """Return the log-probabilities of `compute_topk_scores`, whose kernels need Triton."""
    logprobs = logits.log_softmax(-1)
    ids = logprobs.topk(num_top).indices
    if more["max_per_req_token_ids"]:
        ids = torch.tensor(more["logprob_token_ids_state"].ids).expand(len(logprobs), -1)
    ids = torch.cat([sampled[:, None], ids], 1)
    return LogprobsTensors(ids, logprobs.gather(1, ids), torch.ones(len(logprobs)))


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return str(getattr(node, "name", ""))


def _cut() -> dict[str, Any]:
    names: dict[str, Any] = {
        "torch": torch, "np": np, "F": F, "Any": Any, "Sequence": Sequence,
        "SimpleNamespace": SimpleNamespace, "UvaBackedTensor": _Buffer,
        "LogprobsTensors": LogprobsTensors, "SamplerOutput": SimpleNamespace,
        "compute_topk_scores": _scores, "use_penalty": lambda _: False,
        "async_tensor_h2d": lambda values, **more: torch.as_tensor(
            values, dtype=more.get("dtype")
        ),
    }  # fmt: skip
    package = find_spec("vllm")
    assert package is not None
    assert package.origin is not None
    models, body = Path(package.origin).parent / "model_executor/models", []
    for file in ("diffusion_gemma.py", "diffusion_gemma_sampler.py"):
        for node in ast.parse((models / file).read_text()).body:
            if _name(node) in CUT:
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    node.decorator_list = []  # torch.compile's
                body.append(node)
    assert {*map(_name, body)} == CUT
    exec(compile(ast.Module(body, []), "vllm", "exec"), names)
    return names


def emitted(
    params: Any, length: int, logits_of: Callable[[list[int]], torch.Tensor]
) -> tuple[list[int], Any, int]:
    """Return what a request, of vLLM's SamplingParams, is answered: its tokens, their
    LogprobsTensors, and how many forward passes it took. logits_of: of a canvas's ids.
    """
    vllm, named = _cut(), params.logprob_token_ids
    vocab_size = logits_of([0] * length).shape[1]
    states = vllm["DiffusionGemmaRequestStates"](
        4, length, vocab_size, NUM_STEPS, torch.device("cpu"), WIDTH, 2
    )
    nothing = lambda *_: None  # noqa: E731
    base = SimpleNamespace(
        sampling_states=SimpleNamespace(
            add_request=nothing,
            get_top_k_top_p=lambda *_: (None, None),
            max_num_logprobs=lambda _: -1 if params.logprobs is None else params.logprobs,
        ),
        logprob_token_ids_state=SimpleNamespace(
            ids=named, add_request=nothing, max_num_token_ids=lambda _: len(named or [])
        ),
        req_states=SimpleNamespace(draft_tokens=torch.zeros(4, length, dtype=torch.int64)),
        logprobs_mode="raw_logprobs",
    )
    sampler = vllm["DiffusionSampler"](
        base,
        SimpleNamespace(canvas_length=length),
        vocab_size,
        states,
        confidence_threshold=0.005,
        t_min=0.4,
        t_max=0.8,
        entropy_bound=0.1,
        embed_weight=torch.zeros(vocab_size, WIDTH),
        normalizer=torch.tensor(1.0),
    )
    states.add_request(SLOT)
    sampler.add_request(SLOT, params)
    sampler(torch.zeros(0, vocab_size), _batch(0))
    width = int(states.canvas_width_np[SLOT])
    for num_passes in range(1, 2 * NUM_STEPS):
        canvas = base.req_states.draft_tokens[SLOT, :width].tolist()
        output = sampler(logits_of(canvas), _batch(width))
        if count := int(output.num_sampled[0]):
            tokens = output.sampled_token_ids[0, :count].tolist()
            return tokens, output.logprobs_tensors, num_passes
    raise AssertionError("vLLM's sampler never ended")


def _batch(num_logits: int) -> SimpleNamespace:
    """Return a batch of the one request: of its whole prompt, or of its canvas."""
    num_tokens = num_logits or 5
    ends = np.array([0, num_tokens])
    return SimpleNamespace(
        num_reqs=1,
        num_draft_tokens=num_logits,
        idx_mapping_np=np.array([SLOT]),
        idx_mapping=torch.tensor([SLOT]),
        num_computed_prefill_tokens_np=np.array([0]),
        num_scheduled_tokens=np.array([num_tokens]),
        prefill_len_np=np.array([num_tokens]),
        cu_num_logits_np=np.array([0, num_logits]),
        query_start_loc_np=ends,
        query_start_loc=torch.from_numpy(ends),
    )
