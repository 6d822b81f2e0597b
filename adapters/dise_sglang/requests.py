"""What SGLang's scheduler keeps of a request: all of it on the request itself, with which
it goes where that is aborted.
"""

from typing import Any

import torch

from dise_sglang.confidence import confidences_of
from dise_sglang.recording import BLOCKS, own_logprobs

NUMBERS = ("step_maps", "written", "dise_logprobs")
TOKEN_KEYS = (*NUMBERS, "was_there")
"""A value for each token of the answer, in `meta_info`."""

ANSWER = "dise_answer"
"""What is told of a finished answer, until it is in `meta_info`, at its last token."""


def prepare(_: object, scheduler: Any) -> None:
    """Open what scores the answers of a scheduler, if it runs a diffusion model."""
    if (config := scheduler.dllm_config) is not None:
        model = scheduler.server_args.model_path
        algorithm = config.algorithm, config.algorithm_config
        scheduler.dise_confidences = confidences_of(model, *algorithm)


def attach(_: Any, batch: Any, result: Any) -> None:
    """Hand each request what is told of the block that it is about to be given."""
    info = getattr(result.logits_output, "customized_info", None) or {}
    blocks = info.get(BLOCKS) or [None] * len(batch.reqs)
    for row, (req, block) in enumerate(zip(batch.reqs, blocks, strict=True)):
        req.dise_block = block
        asked = (req.sampling_params.custom_params or {}).get("dise")
        # A context that is encoded apart has no logits.
        is_read = asked == "prompt" and not req.dllm_config.requires_separate_context_encoding
        if is_read and req.extend_end <= len(req.origin_input_ids):
            _read_prompt(req, row, result.logits_output.full_logits)


def _read_prompt(req: Any, row: int, logits: torch.Tensor) -> None:
    """Keep the log-probabilities of a block of the prompt, [L], by its place."""
    length = req.dllm_config.block_size
    span = slice(req.extend_end - length, req.extend_end)
    ids = torch.tensor(req.full_untruncated_fill_ids[span].tolist(), device=logits.device)
    rows = torch.arange(row * length, (row + 1) * length, device=logits.device)
    values = own_logprobs(logits, rows, ids).tolist()
    req.dise_prompt = {**getattr(req, "dise_prompt", {}), span.start: values}


def emit(_: object, scheduler: Any, req: Any) -> None:
    """Add a block's tokens to what its request tells, and the answer's scores at its end."""
    block, req.dise_block = getattr(req, "dise_block", None), None
    if block is None:
        return
    info = req.customized_info = req.customized_info or {}
    for key in TOKEN_KEYS:
        values, row = info.setdefault(key, []), block[key]
        num_new = len(req.output_ids) - len(values)
        values += [None] * (num_new - len(row)) + row[max(0, len(row) - num_new) :]
    req.dise_edits = getattr(req, "dise_edits", 0) + block["edits"]
    if req.finished():
        length = len(req.output_ids) if req.finished_len is None else req.finished_len
        info[ANSWER] = [None] * (length - 1) + [_told(scheduler, req, length)]


def _told(scheduler: Any, req: Any, length: int) -> dict[str, Any]:
    columns = [req.customized_info[key][:length] for key in NUMBERS]
    ids = list(req.origin_input_ids), list(req.output_ids[:length])
    told = {"num_edits": req.dise_edits}
    if (confidences := scheduler.dise_confidences) is not None:
        told |= confidences.tell(*ids, columns, req.sampling_params.max_new_tokens)
    if prompt := getattr(req, "dise_prompt", None):
        told["prompt"] = [value for _, values in sorted(prompt.items()) for value in values]
    return told
