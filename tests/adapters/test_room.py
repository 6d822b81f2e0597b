"""How much memory is free, which type of weights fits into it, and what is refused unread."""

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dise_adapters.checkpoint.hub import read_config
from dise_adapters.checkpoint.weights import Safetensors
from dise_adapters.families.family import Checkpoint
from dise_adapters.families.llada import LLADA
from dise_adapters.local.decoder import speed
from dise_adapters.local.free_memory import free_main_memory
from dise_adapters.local.loading import fits
from dise_adapters.local.loading.fits import Claim
from dise_adapters.predictor import predictor_of
from dise_core import LLM, EngineConfig, InputError
from tests import sparse, tiny_causal
from tests.gguf_files import MODELS, convert
from tests.reference_llada import default_config, random_weights, write_checkpoint
from tests.tiny_lora import linear, pair, write

GIB = 2**30
CONFIG = default_config(d_model=256, n_layers=4, n_heads=4, n_kv_heads=4, mlp_hidden_size=768)
LAYER = 4 * 256 * 256 + 3 * 256 * 768 + 2 * 256
NUMBERS = 2 * 52 * 256 + 256 + 4 * LAYER
PASS = 2048 * (4 * 256 + 4 * 256 + 2 * 768 + 256) * 4 + 2**25 // 8 // 52 * 52 * 3 * 4


def machine(root: Path, kib: int, groups: str = "") -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 9000 kB\nMemAvailable:  {kib} kB\n")
    if groups:
        (root / "proc/self/cgroup").write_text(groups)
    return root


def group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"memory.{name}").write_text(f"{content}\n")


def test_free_memory_heeds_a_containers_limit(tmp_path: Path) -> None:
    root = machine(tmp_path, 5000)
    assert free_main_memory(root) == 5000 * 1024
    top = root / "sys/fs/cgroup"
    group(top, max="max", current=3000)
    assert free_main_memory(root) == 5000 * 1024
    group(top, max=4000)
    assert free_main_memory(root) == 1000
    group(top, stat="anon 2000\ninactive_file 500\nactive_file 300\nfile 900")
    assert free_main_memory(root) == 1800
    group(top, max=100)
    assert free_main_memory(root) == 0
    assert free_main_memory(tmp_path / "nothing") is None


def test_free_memory_heeds_the_groups_above_in_version_2(tmp_path: Path) -> None:
    root = machine(tmp_path, 5000, "0::/a.slice/b.service\n")
    own = root / "sys/fs/cgroup/a.slice/b.service"
    group(own, max="max", current=100)
    assert free_main_memory(root) == 5000 * 1024
    group(own.parent, max=7000, current=4000, stat="inactive_file 1000")
    assert free_main_memory(root) == 4000
    group(own, max=500)
    assert free_main_memory(root) == 400


def test_free_memory_heeds_version_1_and_a_container_that_sees_its_own_group_alone(
    tmp_path: Path,
) -> None:
    root = machine(tmp_path, 5000, "5:cpu,cpuacct:/x\n4:memory:/docker/1f\n0::/\n")
    top = root / "sys/fs/cgroup/memory"
    unlimited = 2**63 - 4096
    group(top, limit_in_bytes=unlimited, usage_in_bytes=9000)
    assert free_main_memory(root) == 5000 * 1024
    stat = "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 100"
    group(top, limit_in_bytes=9500, stat=stat)
    assert free_main_memory(root) == 800
    group(top / "docker/1f", limit_in_bytes=700, usage_in_bytes=100)
    assert free_main_memory(root) == 600


def folder_of(tmp_path: Path, dtype: torch.dtype) -> Path:
    weights = {name: part.to(dtype) for name, part in random_weights(CONFIG).items()}
    folder = write_checkpoint(tmp_path / str(dtype), CONFIG, weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def free(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    monkeypatch.setattr(fits, "free_bytes", lambda _: size)


def dtype_of(llm: LLM) -> torch.dtype:
    embed = llm.predictor._reader._body._embed  # type: ignore[attr-defined]
    dtype: torch.dtype = embed.keywords["weight"].dtype
    return dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_auto_is_float32_where_that_fits_with_a_pass_and_else_the_files_16_bits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    dtype: torch.dtype,
) -> None:
    monkeypatch.setattr(fits, "is_slow", lambda _: False)
    folder, name = folder_of(tmp_path, dtype), str(dtype).removeprefix("torch.")
    free(monkeypatch, 4 * NUMBERS + PASS)
    llm = LLM(str(folder), device="cpu")
    assert (dtype_of(llm), llm.config.dtype, caplog.text) == (torch.float32, "auto", "")
    free(monkeypatch, 4 * NUMBERS + PASS - 1)
    with caplog.at_level(logging.WARNING):
        llm = LLM(str(folder), device="cpu")
    assert (dtype_of(llm), llm.config.dtype) == (dtype, name)
    [record] = caplog.records
    assert f"is loaded as {name}, as it is stored: float32 would need 0.1 GiB" in record.message
    unloaded = predictor_of(LLADA).load(str(folder), EngineConfig(device="cpu"))
    assert unloaded.dtype == name


def test_float16_that_is_multiplied_slowly_is_told_where_named_and_else_avoided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fits, "is_slow", lambda dtype: dtype == torch.float16)
    folder = str(folder_of(tmp_path, torch.float16))
    assert dtype_of(LLM(folder, device="cpu", dtype="float16")) == torch.float16
    [slow] = caplog.messages
    assert slow == "This processor multiplies float16 slowly: --dtype bfloat16 takes less time."
    assert dtype_of(LLM(folder, device="cpu", dtype="bfloat16")) == torch.bfloat16
    free(monkeypatch, 4 * NUMBERS + PASS - 1)
    assert dtype_of(LLM(folder, device="cpu")) == torch.bfloat16
    [_, narrowed] = caplog.messages
    assert "is loaded as bfloat16, as this processor multiplies float16 slowly" in narrowed


AVX512 = {"avx512_f": True, "avx512_bf16": False, "amx_bf16": False}
PROCESSORS: dict[str, tuple[dict[str, bool], tuple[bool, bool]]] = {
    "AVX2": ({}, (False, False)),
    "AVX512-BF16": (AVX512 | {"avx512_bf16": True}, (True, False)),
    "AMX": (AVX512 | {"amx_bf16": True, "avx512_fp16": True}, (True, True)),
}
"""Flags, and what oneDNN has kernels for, bfloat16 and float16."""


@pytest.mark.parametrize(
    ("dtype", "size", "taken"),
    [
        (torch.bfloat16, 4 * NUMBERS, ("float32", "bfloat16", "bfloat16")),
        (torch.bfloat16, 4 * NUMBERS + 1, ("float32", "float32", "float32")),
        (torch.float16, 4 * NUMBERS, ("float32", "float32", "float16")),
        (torch.float32, 4 * NUMBERS, ("float32", "float32", "float32")),
        ("Q8_0", 0, ("float32", "float32", "float32")),
    ],
)
def test_auto_is_the_files_16_bits_where_they_are_many_and_the_processor_multiplies_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    dtype: torch.dtype | str,
    size: int,
    taken: tuple[str, ...],
) -> None:
    """size: from which on weights are many."""
    monkeypatch.setattr(fits, "LARGE", size)
    monkeypatch.setattr(fits, "is_slow", lambda _: False)
    monkeypatch.setattr(fits, "multiplies", speed.multiplies.__wrapped__)
    if isinstance(dtype, torch.dtype):
        folder = str(folder_of(tmp_path, dtype))
    else:
        folder = str(tmp_path / "packed.gguf")
        convert(MODELS["llada"], MODELS["llada"].folder(tmp_path / "llada"), Path(folder), dtype)
    for (flags, kernels), name in zip(PROCESSORS.values(), taken, strict=True):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda flags=flags: flags)
        for kind, has in zip(("bf16", "fp16"), kernels, strict=True):
            kernel = f"_is_mkldnn_{kind}_supported"
            monkeypatch.setattr(torch.ops.mkldnn, kernel, lambda has=has: has)
        caplog.clear()
        assert loaded_as(folder) == name
        word = "are expanded to float32" if dtype == "Q8_0" else "as it is stored: float32 rounds"
        assert len(caplog.messages) == (name != "float32" or dtype == "Q8_0")
        assert all(word in line for line in caplog.messages)
        assert loaded_as(folder, dtype="float32") == "float32"
        assert loaded_as(folder, quantization="int8") == "float32"


def test_packed_weights_that_are_expanded_have_a_word_on_what_integers_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "packed.gguf"
    convert(MODELS["llada"], MODELS["llada"].folder(tmp_path / "llada"), path, "Q4_0")
    monkeypatch.setattr(fits, "GIB", 2**10)
    for large, options in ((2**29, {}), (0, {"dtype": "float32"}), (0, {"quantization": "int4"})):
        monkeypatch.setattr(fits, "LARGE", large)
        loaded_as(str(path), **options)
    assert caplog.text == ""
    loaded_as(str(path))
    [told] = caplog.messages
    assert f"The packed weights in {path} are expanded to float32" in told
    wide, eight, four = map(float, re.findall(r"(\d+\.\d)(?=\.| GiB| and)", told))
    assert wide > eight > four > 0
    caplog.clear()
    free(monkeypatch, 2**10 * 2 * wide)  # too little for a pass in float32
    loaded_as(str(path))
    narrowed, told = caplog.messages
    assert "is loaded as bfloat16: float32 would need" in narrowed
    assert "are expanded to bfloat16" in told


def loaded_as(folder: str, **options: Any) -> str:
    return predictor_of(LLADA).load(folder, EngineConfig(device="cpu", **options)).dtype


def test_the_processor_says_what_it_multiplies_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not speed.is_slow(torch.float32)
    seconds = {torch.float32: 1.0, torch.bfloat16: 0.5, torch.float16: 1.6}
    monkeypatch.setattr(speed, "_seconds", seconds.__getitem__)
    is_slow = speed.is_slow.__wrapped__
    assert [is_slow(dtype) for dtype in seconds] == [False, False, True]


def test_weights_stored_in_float32_are_never_rounded_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path, torch.float32)
    free(monkeypatch, 4 * NUMBERS - 1)
    with pytest.raises(InputError, match=r"as float32, .*What fits: --dtype bfloat16 needs"):
        LLM(str(folder), device="cpu")
    assert dtype_of(LLM(str(folder), device="cpu", dtype="bfloat16")) == torch.bfloat16


def test_what_does_not_fit_is_told_what_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(folder_of(tmp_path, torch.bfloat16))
    free(monkeypatch, 6_000_000)  # 6.9 MB of weights; 3.5 in int8, and 3.1 to round one
    told = r"as bfloat16, and 0.0 GiB are free. What fits: --quantization int4 needs 0.0 GiB\."
    with pytest.raises(InputError, match=told):
        LLM(folder, device="cpu")
    LLM(folder, device="cpu", quantization="int4")
    with pytest.raises(InputError, match="as int8, and"):
        LLM(folder, device="cpu", quantization="int8")
    free(monkeypatch, 1000)
    with pytest.raises(InputError, match="No other type of weights fits either"):
        LLM(folder, device="cpu", quantization="int4")


def test_a_judge_counts_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(folder_of(tmp_path, torch.bfloat16))
    judge = tiny_causal.checkpoint(tmp_path / "judge", tiny_causal.llama())
    free(monkeypatch, 4 * NUMBERS + PASS)
    assert dtype_of(LLM(folder, device="cpu")) == torch.float32
    llm = LLM(folder, judge=judge, device="cpu")
    assert (dtype_of(llm), llm.config.dtype) == (torch.bfloat16, "bfloat16")
    # How many copies of a layer stand beside it depends on how the processor multiplies bfloat16.
    alone: Any = llm.predictor
    free(monkeypatch, Claim.of(alone._checkpoint, llm.config).sizes["cpu"][1] + 1000)
    LLM(folder, device="cpu")
    with pytest.raises(InputError, match=rf"{folder} and what is loaded beside it \({judge}\) ne"):
        LLM(folder, judge=judge, device="cpu")


def test_a_gpus_memory_is_looked_at_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, device = folder_of(tmp_path, torch.bfloat16), torch.device("cuda:1")
    monkeypatch.setattr(fits, "choose_device", lambda _: device)
    asked: list[torch.device] = []

    def free_of(place: torch.device) -> float:
        asked.append(place)
        return 2 * NUMBERS - 1

    monkeypatch.setattr(fits, "free_bytes", free_of)
    settings = LLADA.settings(read_config(str(folder)) or {}, str(folder))
    wanted = [(Checkpoint(LLADA, Safetensors(folder), settings), EngineConfig(device="cuda:1"))]
    with pytest.raises(InputError, match=r"of the memory of cuda:1 as bfloat16, and 0.0 GiB are"):
        fits.fitted(wanted)
    assert asked == [device]


def test_a_model_larger_than_the_machine_is_refused_unread(tmp_path: Path) -> None:
    large = sparse.llada(tmp_path / "large")
    with pytest.raises(InputError, match=r"needs 1\d\d\d\.\d GiB of main memory as bfloat16"):
        LLM(str(large), device="cpu")
    judge = sparse.llama(tmp_path / "judge")
    with pytest.raises(
        InputError, match=r"countdown and what is loaded beside it .* needs 1\d\d\d"
    ):
        LLM("countdown", judge=str(judge), device="cpu")


MEASURE = """
import ctypes, gc, json, sys, threading, time
from pathlib import Path
from typing import Any
from dise_adapters.local.loading.fits import Claim
from dise_core import LLM

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) * 1024

def settle():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return anonymous()

def watch():
    while not is_loaded:
        seen.append(anonymous())
        time.sleep(0.001)

LLM("countdown").score("", "1+2=3")
llm = LLM(sys.argv[1], lazy=True, **json.loads(sys.argv[2]))
[(kept, peak)] = Claim.of(llm.predictor._checkpoint, llm.predictor._config).sizes.values()
before, seen, is_loaded = settle(), [], False
watcher = threading.Thread(target=watch)
watcher.start()
llm.load()
is_loaded = True
watcher.join()
print(json.dumps([kept, settle() - before, peak, max(seen) - before]))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = default_config(d_model=512, n_layers=12, n_heads=8, n_kv_heads=8, mlp_hidden_size=1536)
    weights = {name: part.bfloat16() for name, part in random_weights(config).items()}
    return write_checkpoint(tmp_path_factory.mktemp("large"), config, weights)


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's account of the process")
@pytest.mark.parametrize(
    ("options", "is_adapted"),
    [
        ({"dtype": "float32"}, False),
        ({"dtype": "bfloat16"}, True),
        ({"quantization": "int8"}, False),
        ({"quantization": "int8"}, True),
    ],
)
def test_what_loading_takes_is_known_before(
    large: Path, tmp_path: Path, options: dict[str, str], is_adapted: bool
) -> None:
    options, tensors = {**options, "device": "cpu"}, dict[str, torch.Tensor]()
    if is_adapted:
        weights = load_file(large / "model.safetensors")
        for name in linear(weights):
            tensors |= pair(name, *weights[f"{name}.weight"].shape)
        options["lora"] = str(write(tmp_path, tensors))
    command = [sys.executable, "-c", MEASURE, str(large), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    kept, held, peak, seen = json.loads(done.stdout)
    assert held == pytest.approx(kept, rel=0.15, abs=2**23)
    assert seen < peak + 2**25
