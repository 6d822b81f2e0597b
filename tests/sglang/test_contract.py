"""What we use of SGLang's insides is where it was. If this fails, read docs/sglang.md before
changing the versions.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from dise_core import PluginError
from dise_sglang import contract, plugin
from tests.sglang.wheel import NONE, VERSIONS, WHEELS, Elsewhere, sglang

FILES = [
    "dllm/algorithm/__init__", "dllm/algorithm/base", "dllm/algorithm/low_confidence",
    "dllm/algorithm/joint_threshold", "dllm/algorithm/joint_threshold_indel",
    "dllm/algorithm/gemma4_renoise",
    "dllm/mixin/scheduler", "plugins/hook_registry", "managers/tokenizer_manager",
    "entrypoints/openai/serving_chat", "entrypoints/openai/serving_completions",
]  # fmt: skip

pytestmark = pytest.mark.skipif(not VERSIONS, reason=NONE)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_function_is_where_and_as_we_use_it(version: str) -> None:
    assert not contract.moved(WHEELS / version / "sglang")


@pytest.mark.parametrize("version", VERSIONS)
def test_its_scheduler_and_requests_have_the_fields_that_we_read_and_set(version: str) -> None:
    srt = WHEELS / version / "sglang" / "srt"
    for file, texts in {
        "dllm/mixin/scheduler.py": ["req.extend_end", "req.full_untruncated_fill_ids", "batch.reqs",
                                    "result.accept_length_per_req_cpu", "stream_output(batch.reqs"],
        "dllm/algorithm/gemma4_renoise.py": ['"step": self.max_denoising_steps',
                                             'state["step"] -= 1', 'state["argmax"] = argmax',
                                             "super().run(model_runner, forward_batch"],
        "managers/schedule_batch.py": ["self.customized_info:", "self.finished_len", "extend_end"],
        "layers/logits_processor.py": ["customized_info: Optional", "full_logits: Optional"],
        "managers/scheduler_components/output_streamer.py": ["in req.customized_info.items()"],
        "managers/tp_worker.py": ["logits_output=logits_output", "req.dllm_algo_state"],
        "managers/io_struct.py": ["extra_key: "],
    }.items():  # fmt: skip
        source = (srt / file).read_text()
        assert [text for text in texts if text not in source] == [], file


def altered(folder: Path, old: str, new: str) -> list[str]:
    """Return what is told of a copy of the newest SGLang with one text for another."""
    for name in FILES:
        source = (WHEELS / VERSIONS[-1] / "sglang" / "srt" / f"{name}.py").read_text()
        place = folder / "srt" / f"{name}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source.replace(old, new))
    return contract.moved(folder)


def test_what_moved_is_named(tmp_path: Path) -> None:
    assert altered(tmp_path, "", "") == []
    faults = altered(tmp_path, "full_logits: torch.Tensor", "logits_output: Any")
    assert len(faults) == 5
    assert faults[0] == (
        "sglang.srt.dllm.algorithm.base.DllmAlgorithm.step takes (self forward_batch "
        "logits_output states), not (self forward_batch full_logits states)."
    )
    faults = altered(tmp_path, "_apply_edit_operations", "_edit")
    assert faults == [f"sglang.{contract.INDEL}._apply_edit_operations is not there any more."]


def test_an_sglang_that_moved_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "moved", lambda _: ["sglang.x is not there any more."])
    with sglang(VERSIONS[-1]):
        with pytest.raises(PluginError, match=r"does not fit this SGLang.*sglang\.x is not there"):
            plugin.register()
        assert not any(isinstance(module, Elsewhere) for name, module in sys.modules.items()
                       if name.startswith("sglang.srt"))  # fmt: skip


def test_importing_the_plugin_imports_neither_sglang_nor_torch() -> None:
    code = (
        "import sys, dise_sglang.plugin; sys.exit(bool({'sglang', 'torch'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
