"""What SGLang opens in each of its processes: the hooks."""

from importlib.util import find_spec
from pathlib import Path

from dise_core import PluginError
from dise_sglang.contract import CHAT, MANAGER, MIXIN, TEXT, moved


def register() -> None:
    """Register the hooks with SGLang: its entry point in the group sglang.srt.plugins.

    Raises PluginError, which SGLang logs before it goes on without us, where what we hook
    has moved.
    """
    spec = find_spec("sglang")
    folders = [] if spec is None else spec.submodule_search_locations or []
    if faults := moved(Path(next(iter(folders), ""))):
        raise PluginError(
            f"dise_sglang does not fit this SGLang, whose answers get no scores: {faults[0]} "
            "Take SGLang 0.5.22 or 0.5.23, or a newer dise."
        )
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from dise_sglang import answers, requests
    from dise_sglang.recording import recorded

    for name, hook, kind in (
        ("srt.dllm.algorithm.get_algorithm_cls", recorded, HookType.AFTER),
        (f"{MIXIN}.init_diffusion_llm", requests.prepare, HookType.AFTER),
        (f"{MIXIN}.process_batch_result_dllm", requests.attach, HookType.BEFORE),
        (f"{MIXIN}._finish_dllm_request_if_needed", requests.emit, HookType.AFTER),
        (f"{MANAGER}.update_request_meta_info", answers.unpack, HookType.BEFORE),
        (f"{CHAT}._build_chat_response", answers.tell, HookType.AFTER),
        (f"{TEXT}._build_completion_response", answers.tell, HookType.AFTER),
    ):
        HookRegistry.register(f"sglang.{name}", hook, kind)
