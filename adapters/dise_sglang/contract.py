"""What we use of SGLang's insides, and what of it is elsewhere in an installed one."""

import ast
from collections.abc import Sequence
from pathlib import Path

BASE = "srt.dllm.algorithm.base.DllmAlgorithm"
INDEL = "srt.dllm.algorithm.joint_threshold_indel.JointThresholdInDel"
RENOISE = "srt.dllm.algorithm.gemma4_renoise.Gemma4Renoise"
MIXIN = "srt.dllm.mixin.scheduler.SchedulerDllmMixin"
MANAGER = "srt.managers.tokenizer_manager.TokenizerManager"
CHAT = "srt.entrypoints.openai.serving_chat.OpenAIServingChat"
TEXT = "srt.entrypoints.openai.serving_completions.OpenAIServingCompletion"
STEP = "self forward_batch full_logits states"

USES = {
    "srt.plugins.hook_registry.HookRegistry.register": "cls target hook hook_type",
    "srt.dllm.algorithm.get_algorithm_cls": "name",
    f"{BASE}.init_step_state": "self forward_batch",
    f"{BASE}.prepare_inputs": "self model_runner forward_batch states",
    f"{BASE}.run": "self model_runner forward_batch algo_states",
    f"{BASE}.step": STEP,
    "srt.dllm.algorithm.low_confidence.LowConfidence.step": STEP,
    "srt.dllm.algorithm.joint_threshold.JointThreshold.step": STEP,
    f"{INDEL}.step": STEP,
    f"{INDEL}._apply_edit_operations": (
        "self block_tokens old_block_tokens is_orig_mask prompt_len"
    ),
    f"{RENOISE}.init_step_state": "self forward_batch",
    f"{RENOISE}.prepare_inputs": "self model_runner forward_batch states",
    f"{RENOISE}.run": "self model_runner forward_batch algo_states",
    f"{RENOISE}.step": STEP,
    f"{MIXIN}.init_diffusion_llm": "self",
    f"{MIXIN}.process_batch_result_dllm": "self batch result",
    f"{MIXIN}._finish_dllm_request_if_needed": "self req",
    f"{MANAGER}.update_request_meta_info": (
        "self meta_info state customized_info index finish_reason"
    ),
    f"{CHAT}._build_chat_response": "self request ret created",
    f"{TEXT}._build_completion_response": "self request ret created",
}
"""The parameters of each function."""


def moved(folder: Path) -> list[str]:
    """Return a sentence on each function that the SGLang in a folder has not where, or
    as, we use it. Reads the files and imports nothing.
    """
    faults = []
    for name, wanted in USES.items():
        given = _parameters(folder, name.split("."))
        if given is None:
            faults.append(f"sglang.{name} is not there any more.")
        elif given != wanted:
            faults.append(f"sglang.{name} takes ({given}), not ({wanted}).")
    return faults


def _parameters(folder: Path, path: Sequence[str]) -> str | None:
    """Return the parameters of a function by its path, which begins with its file's."""
    while path and (folder / path[0]).is_dir():
        folder, path = folder / path[0], path[1:]
    file = folder / f"{path[0]}.py"
    file, path = (file, path[1:]) if file.is_file() else (folder / "__init__.py", path)
    body = ast.parse(file.read_text()).body if file.is_file() else []
    for name in path:
        node = next((node for node in body if getattr(node, "name", None) == name), None)
        if isinstance(node, ast.FunctionDef):
            return " ".join(argument.arg for argument in node.args.args)
        body = node.body if isinstance(node, ast.ClassDef) else []
    return None
