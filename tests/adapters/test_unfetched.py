"""What a model on the hub takes is told, and refused, before its weights are downloaded."""

from __future__ import annotations

import json
import logging
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from dise_adapters.checkpoint.hub import read_config
from dise_adapters.checkpoint.unfetched import missing_bytes
from dise_adapters.checkpoint.weights import INDEX, SINGLE, Safetensors
from dise_adapters.families.family import Checkpoint
from dise_adapters.families.llada import LLADA
from dise_adapters.local.loading import fits
from dise_core import EngineConfig
from tests import sparse
from tests.hubs import Hub, ask, serving, variables
from tests.reference_llada import default_config, random_weights, write_checkpoint

MODEL = "someone/some-model"
CONFIG = default_config(max_sequence_length=32)
SCORE = (
    "score",
    "--model",
    MODEL,
    "--device",
    "cpu",
    "--response",
    "ab",
    "--json",
    "--scorer",
    "dise",
)
NEEDS = f"The checkpoint in {MODEL} is not on this machine yet. As float32 it needs 0.0 GiB of main"
DOWNLOADING = f"Downloading 0.0 GiB of weights of {MODEL}; "
LARGE = (
    rf"dise: The checkpoint in {MODEL}( and .*)? needs 1\d\d\d\.\d GiB of main memory as bfloat16"
)


class Run(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


def dise(endpoint: str, home: Path, *command: object, **environment: str) -> Run:
    done = subprocess.run(
        [sys.executable, "-m", "dise", *map(str, command)],
        env=variables(endpoint, home) | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"} | environment,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return Run(done.returncode, done.stdout, done.stderr)


def written(folder: Path, is_sharded: bool) -> Path:
    """Write a small checkpoint, whose weights are in one file or in two."""
    write_checkpoint(folder, CONFIG, random_weights(CONFIG))
    if is_sharded:
        weights, names = load_file(folder / SINGLE), dict[str, str]()
        for number in range(2):
            part = dict(sorted(weights.items())[number::2])
            names |= dict.fromkeys(part, file := f"model-{number}.safetensors")
            save_file(part, folder / file)
        (folder / SINGLE).unlink()
        (folder / INDEX).write_text(json.dumps({"weight_map": names}))
    return folder


@pytest.mark.parametrize("is_sharded", [False, True], ids=["one file", "two files"])
def test_what_a_model_takes_is_told_before_it_is_downloaded_and_what_is_here_asks_nothing(
    tmp_path: Path, is_sharded: bool
) -> None:
    hub, home = Hub(written(tmp_path / "hub", is_sharded)), tmp_path / "home"
    files = {path.name for path in hub.folder.glob("*.safetensors")}
    plain = dise("", home, *SCORE, "--model", hub.folder)
    with serving(hub) as endpoint:
        first = dise(endpoint, home, *SCORE)
        assert {file for file in hub.fetched if file in files} == {*hub.read} == files
        num_sent = len(hub.fetched), len(hub.read)
        second = dise(endpoint, home, *SCORE)
        assert (len(hub.fetched), len(hub.read)) == num_sent
    offline = dise(endpoint, home, *SCORE, HF_HUB_OFFLINE="1")
    assert first.err.index(NEEDS) < first.err.index(DOWNLOADING), first.err
    assert re.search(r"of which [\d.]+ GiB are free\.$", first.err, re.M)
    assert re.search(rf"[\d.]+ GiB are free on the disk of {home}/hub\.$", first.err, re.M)
    scores = [json.loads(run.out)["outputs"][0]["score"] for run in (plain, first, second, offline)]
    assert all(score == scores[0] for score in scores)
    assert plain.err + second.err + offline.err == ""


DOORS = {
    "model": ("generate", "a", "--model", MODEL),
    "judge": ("score", "--response", "1+2=3", "--judge", MODEL),
    "recipe": ("eval", "--recipe", "my.json", "--output", "run"),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_model_that_cannot_fit_is_refused_before_its_weights_are_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.jsonl").write_text(json.dumps({"question": "1+2", "answer": "3"}))
    recipe = {"model": MODEL, "dataset": "./mine.jsonl", "prompt": "{{question}}"}
    recipe |= {"sampling": {"max_tokens": 4}, "grader": "text"}
    published = {"percent": 50, "questions": 1, "source": "a table"}
    Path("my.json").write_text(json.dumps(recipe | {"published": published}))
    large = sparse.llama if door == "judge" else sparse.llada
    hub = Hub(large(tmp_path / "hub"))
    with serving(hub) as endpoint:
        run = dise(endpoint, tmp_path / "home", *DOORS[door], "--device", "cpu")
    assert run.code == 2
    asked = LARGE.replace(f"in {MODEL}( and .*)?", rf"in .*countdown and .*\({MODEL}\)")
    assert re.search(asked if door == "judge" else LARGE, run.err), run.err
    assert "downloading" not in run.err.casefold()
    assert (SINGLE in hub.fetched, {*hub.read}) == (False, {SINGLE})
    assert not Path("run").exists()


def test_a_request_is_refused_before_the_weights_are_downloaded(tmp_path: Path) -> None:
    hub = Hub(written(tmp_path / "hub", is_sharded=False))
    with serving(hub) as endpoint:
        run = dise(endpoint, tmp_path / "home", *SCORE, "--prompt", "a" * 40)
    assert (run.code, "longer than the model's limit of 32 tokens" in run.err) == (2, True)
    assert SINGLE not in hub.fetched


ROOMY = f"""
from dise_adapters.local.loading import fits
from dise_core import LLM, InputError
fits.free_bytes = lambda device: 2**70
try:
    LLM("{MODEL}", device="cpu")
except InputError as error:
    print(error)
"""


def test_weights_larger_than_the_disk_are_not_downloaded(tmp_path: Path) -> None:
    folder = written(tmp_path / "hub", is_sharded=False)
    data = (folder / SINGLE).read_bytes()
    [length] = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header["more"] = {"dtype": "F32", "shape": [2**58], "data_offsets": [2**60, 2**61]}
    text = json.dumps(header).encode()
    (folder / SINGLE).write_bytes(struct.pack("<Q", len(text)) + text)
    hub = Hub(folder)
    with serving(hub) as endpoint:
        told = ask(endpoint, tmp_path / "home", ROOMY)
    size = rf"The weights of {MODEL} that are not here yet take {2**31}\.0 GiB, and [\d.]+ GiB are "
    assert re.match(rf"{size}free on the disk of {tmp_path}\S+\. Free some, or", told), told
    assert SINGLE not in hub.fetched


def test_a_model_without_safetensors_is_told(tmp_path: Path) -> None:
    hub = Hub(written(tmp_path / "hub", is_sharded=False))
    (hub.folder / SINGLE).unlink()
    with serving(hub) as endpoint:
        run = dise(endpoint, tmp_path / "home", *SCORE)
    assert (run.code, run.err.count("\n")) == (1, 1)
    assert f"dise: model '{MODEL}' cannot be downloaded: '{MODEL}' is not a safetensors" in run.err


def test_what_a_download_has_begun_is_not_counted_again(tmp_path: Path) -> None:
    folder, blobs = tmp_path / "snapshots" / "commit", tmp_path / "blobs"
    folder.mkdir(parents=True)
    sizes = {"a": 2**20, "b": 3 * 2**20}
    assert missing_bytes(folder, sizes) == 2**22
    (folder / "a").touch()
    assert missing_bytes(folder, sizes) == 3 * 2**20
    blobs.mkdir()
    with (blobs / "etag.incomplete").open("wb") as file:
        file.write(b"x" * 2**20)
        os.fsync(file)
    assert missing_bytes(folder, sizes) == pytest.approx(2**21, abs=2**16)
    with (blobs / "other.incomplete").open("wb") as file:
        file.write(b"x" * 2**22)
        os.fsync(file)
    assert missing_bytes(folder, sizes) == 0


class OnHub(Safetensors):
    """Weights as if they were on the hub."""

    @property
    def hub_id(self) -> str:
        return MODEL


def test_a_gpus_memory_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = written(tmp_path, is_sharded=False)
    monkeypatch.setattr(fits, "choose_device", lambda _: torch.device("cuda:1"))
    monkeypatch.setattr(fits, "free_bytes", lambda _: 3 * 2**30)
    settings = LLADA.settings(read_config(str(folder)) or {}, str(folder))
    with caplog.at_level(logging.WARNING):
        fits.fitted([(Checkpoint(LLADA, OnHub(folder), settings), EngineConfig(device="cuda:1"))])
    needs = "needs 0.0 GiB of the memory of cuda:1, of which 3.0 GiB are free."
    assert caplog.messages == [
        f"The checkpoint in {MODEL} is not on this machine yet. As bfloat16 it {needs}"
    ]
