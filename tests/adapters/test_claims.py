"""Which adapter loads what: ours conform, a folder never asks the hub, and a hub that fails is
asked once, or again where it is busy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from dise_adapters.checkpoint.hub import config_if_any
from dise_adapters.embedded import (
    CountdownBlocksPredictor,
    CountdownPredictor,
    WordProblemsPredictor,
)
from dise_adapters.vllm.server.predictor import VllmServerPredictor
from dise_core import LLM, DiseError, InputError
from dise_core.errors import CheckpointError
from dise_core.testing import check_claims
from tests.hubs import ask, hub_of, serving
from tests.published import PUBLISHED

CONFIGS = {
    "llada": '{"model_type": "llada", "architectures": ["LLaDAModelLM"]}',
    "dream": '{"model_type": "Dream", "architectures": ["DreamModel"]}',
    "llama": '{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}',
    "t5": '{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}',
    "diffusion-gemma": '{"architectures": ["DiffusionGemmaForBlockDiffusion"]}',
    "masked-lm": '{"model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"]}',
    **{
        each.family: json.dumps(each.fields(_name_or_path=each.called))
        for each in PUBLISHED.values()
    },
}

KIT = """
import sys
from pathlib import Path
from dise_adapters.plugin import FAMILIES
from dise_adapters.predictor import predictor_of
from dise_core.testing import check_claims
folders = {Path(folder).name: folder for folder in sys.argv[1:]}
assert set(FAMILIES) - {"diffullama", "diffugpt"} < set(folders)
adapters = {name: predictor_of(family) for name, family in FAMILIES.items()}
for name, adapter in adapters.items():
    others = [folder for other, folder in folders.items() if other != name]
    strange = ["countdown", "http://127.0.0.1:8000", "x" * 5000, "x\\0y"]
    check_claims(adapter, [folders[name]] if name in folders else [], [*others, *strange])
check_claims(adapters["llama"], ["/some/model.gguf"])
print("all conform")
"""

LOAD = """
import sys
from dise_core import EngineConfig, DiseError
from dise_core.plugins.discovery import installed_catalog
try:
    installed_catalog().load_model("someone/some-model", EngineConfig())
except DiseError as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    for name, config in CONFIGS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config)
    return [str(tmp_path / name) for name in CONFIGS]


def test_the_adapters_of_folders_and_hub_ids_conform(folders: list[str], tmp_path: Path) -> None:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", KIT, *folders], env=environment,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip() == "all conform", done.stderr


def test_the_adapters_of_names_and_addresses_conform(folders: list[str]) -> None:
    addresses = ["http://127.0.0.1:8000", "https://gpu7#some/model"]
    check_claims(CountdownPredictor, ["countdown"], ["countdown-blocks", *folders, *addresses])
    check_claims(CountdownBlocksPredictor, ["countdown-blocks"], ["countdown", *folders])
    check_claims(WordProblemsPredictor, ["word-problems"], ["countdown", *folders])
    check_claims(VllmServerPredictor, addresses, [*folders, "countdown"])


def test_an_adapter_that_is_named_says_what_it_misses(folders: list[str]) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json has no field 'n_heads'"):
        LLM(folders[2], adapter="llada")
    for adapter in ("countdown", "vllm-server"):
        with pytest.raises(InputError, match=rf"adapter '{adapter}' .* not '/some/folder'"):
            LLM("/some/folder", adapter=adapter)


@pytest.mark.parametrize("name", ["x" * 5000, "x\0y", "~of-nobody/model", "./nowhere"])
def test_a_name_that_is_no_path_is_nobodys_and_an_input_error(name: str) -> None:
    assert config_if_any(name) is None
    with pytest.raises(InputError):
        LLM(name)


@pytest.mark.parametrize(
    ("failures", "told", "num_failed", "num_fetched"),
    [
        ([404] * 50, "ModelError: the hub has no model 'someone/some-model'", 1, 0),
        (
            [],
            "Its config.json says model_type 't5' and architectures T5ForConditionalGeneration",
            0,
            1,
        ),
    ],
)
def test_a_hub_is_asked_once_for_all_adapters(
    tmp_path: Path, failures: list[int], told: str, num_failed: int, num_fetched: int
) -> None:
    hub = hub_of(tmp_path / "hub", failures, CONFIGS["t5"].encode())
    with serving(hub) as endpoint:
        answer = ask(endpoint, tmp_path, script=LOAD)
    assert told in answer
    assert (hub.num_failed, len(hub.fetched)) == (num_failed, num_fetched)


def test_a_folder_never_asks_the_hub(folders: list[str], tmp_path: Path) -> None:
    hub = hub_of(tmp_path / "hub", [404] * 50)
    script = LOAD.replace('"someone/some-model"', repr(folders[3]))
    with serving(hub) as endpoint:
        answer = ask(endpoint, tmp_path / "home", script=script)
    assert answer.startswith("UnknownNameError")
    assert hub.num_failed == 0


def test_a_busy_hub_is_asked_again(tmp_path: Path) -> None:
    hub = hub_of(tmp_path / "hub", [503, 500])
    with serving(hub) as endpoint:
        assert ask(endpoint, tmp_path) == "{'model_type': 'llada'}"
    assert hub.num_failed == 2


def test_a_refusal_is_final(tmp_path: Path) -> None:
    hub = hub_of(tmp_path / "hub", [401] * 50)
    with serving(hub) as endpoint:
        answer = ask(endpoint, tmp_path)
    assert answer.startswith("ModelError")
    assert "'someone/some-model'" in answer
    assert hub.num_failed == 1


@pytest.mark.parametrize("offline", [{}, {"HF_HUB_OFFLINE": "1"}])
def test_a_hub_that_cannot_be_reached_says_what_to_do(
    tmp_path: Path, offline: dict[str, str]
) -> None:
    answer = ask("http://127.0.0.1:9", tmp_path, **offline)
    assert "'someone/some-model' is not on this machine and the hub cannot be reached" in answer
    assert "give the folder of a checkpoint" in answer


@pytest.mark.parametrize("model", ["someone/some-model", "EMPTY", "BROKEN"])
def test_a_model_that_cannot_be_loaded_is_one_exception_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """Neither the hub's nor a reader's own are printed above it, nor is one asked twice."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "BROKEN").mkdir()
    (tmp_path / "EMPTY").mkdir()
    (tmp_path / "BROKEN" / "config.json").write_text("{")
    with pytest.raises(DiseError) as raised:
        LLM(model if "/" in model else str(tmp_path / model))
    printed = "".join(traceback.format_exception(raised.value))
    assert printed.count("Traceback") == 1
    assert len(printed.splitlines()) < 60
    assert printed.splitlines()[-1].endswith(str(raised.value))
