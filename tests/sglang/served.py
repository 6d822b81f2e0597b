"""SGLang's scheduling of diffusion requests in small: its own parts for requests and for results,
and its own loops, over a model of ours.
"""

from array import array
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from dise_core import Distribution, MaskPredictor, Read


class Runner:
    """The model behind a loop. Counts forwards; computes the logits of a text once."""

    def __init__(self, predictor: MaskPredictor, known: dict[bytes, torch.Tensor]) -> None:
        self.predictor, self.known, self.num_forwards = predictor, known, 0

    def forward(self, forward_batch: Any, **_: object) -> Any:
        self.num_forwards += 1
        blocks = forward_batch.input_ids.view(forward_batch.batch_size, -1).numpy()
        pairs = zip(forward_batch.contexts, blocks, strict=True)
        texts = [np.concatenate([context, block]) for context, block in pairs]
        new = [text for text in texts if text.tobytes() not in self.known]
        places = [np.arange(len(text) - blocks.shape[1], len(text)) for text in new]
        reads = [Read(text, at, Distribution()) for text, at in zip(new, places, strict=True)]
        for text, reading in zip(new, self.predictor.read(reads), strict=True):
            self.known[text.tobytes()] = torch.from_numpy(reading.logprobs.copy())
        logits = torch.cat([self.known[text.tobytes()] for text in texts])
        output = SimpleNamespace(full_logits=logits, customized_info=None)
        return SimpleNamespace(logits_output=output, can_run_graph=False)


def request(
    kind: Any, prompt: Sequence[int], max_tokens: int, config: Any, ends: Any, custom: Any
) -> Any:
    """Return a request of SGLang's, with what its scheduler asks of one. kind: its mixin."""

    class Req(kind):  # type: ignore[misc]
        def __init__(self) -> None:
            self.origin_input_ids, self.output_ids = array("q", prompt), array("q")
            self.prefix_len, self.dllm_initialized, self.extend_end = 0, False, 0
            self.full_untruncated_fill_ids = array("q")
            self.customized_info = self.finished_len = self.finished_reason = None
            self.sampling_params = SimpleNamespace(max_new_tokens=max_tokens, custom_params=custom)
            self.time_stats = SimpleNamespace(set_completion_time=lambda: None)
            self.init_diffusion_llm(config)

        def refresh_fill_ids(self) -> None:
            self.full_untruncated_fill_ids = self.origin_input_ids + self.output_ids

        @property
        def seqlen(self) -> int:
            return len(self.origin_input_ids) + len(self.output_ids)

        def finished(self) -> bool:
            return self.finished_len is not None

        def update_finish_state(self, new_accepted_len: int) -> None:
            stops = [place for place, token in enumerate(self.output_ids) if token in ends]
            length = min([place + 1 for place in stops] + [max_tokens])
            if len(self.output_ids) >= length:
                self.finished_len = length

    return Req()


class Streamer:
    """Hands what is told of finished requests to SGLang's tokenizer manager, as it streams."""

    def __init__(self) -> None:
        from sglang.srt.managers.tokenizer_manager import TokenizerManager

        self.manager, self.answers = TokenizerManager(), dict[int, Any]()

    def stream_output(self, reqs: Sequence[Any], return_logprob: bool) -> None:
        for req in (each for each in reqs if each.finished()):
            told = req.customized_info or {}
            info = {key: [row[: req.finished_len]] for key, row in told.items()}
            assert {len(rows[0]) for rows in info.values()} <= {req.finished_len}
            state = SimpleNamespace(
                customized_info_accumulated={}, customized_info_reported_keys=set()
            )
            meta_info = {"finish_reason": {"type": "stop"}}
            self.manager.update_request_meta_info(meta_info, state, info, 0, {"type": "stop"})
            assert req.rid not in self.answers
            self.answers[req.rid] = meta_info


class Served:
    """SGLang with one algorithm over a model, which is also to be found by a name."""

    def __init__(self, runner: Runner, name: str, settings: Any, model: str, **more: Any) -> None:
        from sglang.srt.dllm.mixin.scheduler import SchedulerDllmMixin

        info, self.runner = runner.predictor.info, runner
        facts = {
            "block_size": info.block_length, "mask_id": info.special.mask_id,
            "requires_separate_context_encoding": False, "first_done_first_out_mode": False,
        }  # fmt: skip
        self.config = SimpleNamespace(
            algorithm=name, algorithm_config=settings, **{**facts, **more}
        )
        self.scheduler = SchedulerDllmMixin()
        self.algorithm: Any = None
        nothing = SimpleNamespace(
            free_group_begin=lambda: None, free_group_end=lambda: None, num_generated_tokens=0,
            report_prefill_stats=lambda **_: None,
        )  # fmt: skip
        vars(self.scheduler).update(
            dllm_config=self.config, token_to_kv_pool_allocator=nothing, metrics_reporter=nothing,
            tree_cache=None, model_config=SimpleNamespace(context_len=info.max_length),
            server_args=SimpleNamespace(model_path=model),
        )  # fmt: skip

    def write(
        self, prompts: Sequence[Sequence[int]], max_tokens: Sequence[int], num_rows: int,
        fdfo: bool = False, aborted: Sequence[int] = (), is_plain: bool = False,
        custom: Any = None,
    ) -> tuple[list[Any], dict[int, Any]]:  # fmt: skip
        """Return the requests, and what is told of each that finished. aborted: those that end
        after a round; is_plain: whether SGLang is alone.
        """
        from sglang.srt.dllm.algorithm import algo_name_to_cls, get_algorithm
        from sglang.srt.dllm.mixin.req import ReqDllmMixin

        from dise_sglang.requests import prepare

        self.config.first_done_first_out_mode = fdfo
        plain = algo_name_to_cls[self.config.algorithm]
        self.algorithm = plain(self.config) if is_plain else get_algorithm(self.config)
        if not hasattr(self.scheduler, "dise_confidences"):
            prepare(None, self.scheduler)
        self.scheduler.output_streamer = streamer = Streamer()
        ends = self.runner.predictor.info.special.eos_ids
        pairs = zip(prompts, max_tokens, strict=True)
        facts = self.config, ends, custom
        reqs = [request(ReqDllmMixin, prompt, most, *facts) for prompt, most in pairs]
        for number, req in enumerate(reqs):
            req.rid = number
        waiting = list(reqs)
        while waiting:
            self.round(waiting[:num_rows])
            waiting = [req for req in waiting if not req.finished() and req.rid not in aborted]
        return reqs, streamer.answers

    def round(self, reqs: Sequence[Any]) -> None:
        """Run a batch: prompts' blocks first, as the scheduler does, or whole contexts."""
        length, is_apart = self.config.block_size, self.config.requires_separate_context_encoding
        for req in reqs:
            if not req.dllm_incomplete_ids or req.dllm_initialized:
                req._init_fill_ids_for_dllm()
            req._update_block_offset_for_dllm()
            req.determine_dllm_phase()
            is_context = is_apart and req.is_dllm_prefill()
            req.extend_end = req.dllm_block_offset if is_context else req.prefix_len + length
        reqs = [req for req in reqs if req.is_dllm_prefill()] or list(reqs)
        spans = [req.full_untruncated_fill_ids[req.prefix_len : req.extend_end] for req in reqs]
        mode = SimpleNamespace(is_dllm_extend=lambda: not (is_apart and reqs[0].is_dllm_prefill()))
        batch = SimpleNamespace(
            batch_size=len(reqs), dllm_prompt_mask=None, forward_mode=mode,
            dllm_input_preparation_state=None, rids=[str(req.rid) for req in reqs],
            input_ids=torch.tensor([token for span in spans for token in span]),
            contexts=[np.array(req.full_untruncated_fill_ids[: req.prefix_len], np.int64)
                      for req in reqs],
        )  # fmt: skip
        states = [req.dllm_algo_state for req in reqs] if self.algorithm.fdfo else None
        output, ids, accepted, states, can_run = self.algorithm.run(self.runner, batch, states)
        result = SimpleNamespace(
            logits_output=output, next_token_ids=ids, accept_length_per_req_cpu=accepted,
            dllm_algo_state=states, can_run_cuda_graph=can_run, copy_done=None,
        )  # fmt: skip
        scheduled = SimpleNamespace(
            reqs=reqs, batch_size=lambda: len(reqs), return_logprob=False, prefill_stats=None,
            dp_cooperation_info=None, forward_mode=mode,
        )  # fmt: skip
        self.scheduler.process_batch_result_dllm(scheduled, result)
        for req in reqs:
            if not req.dllm_incomplete_ids:
                req.prefix_len = req.dllm_block_offset if is_apart else req.extend_end
