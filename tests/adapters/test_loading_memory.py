"""A checkpoint is loaded layer by layer: main memory never holds much beside the model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reference_llada import default_config, random_weights, write_checkpoint

SHARDS = 3

LOAD = """
import ctypes, gc, json, sys
from pathlib import Path
from dise_core import LLM

def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024

def settle():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)

LLM("countdown").score("", "1+2=3")
settle()
before = resident("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
llm = LLM(sys.argv[1], **json.loads(sys.argv[2]))
peak = resident("VmHWM")
settle()
print(json.dumps([peak - before, resident("VmRSS") - before]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's account of the process")
def test_loading_needs_less_than_one_shard_beyond_the_model(tmp_path: Path) -> None:
    config = default_config(d_model=512, n_layers=7, n_heads=8, n_kv_heads=8, mlp_hidden_size=1536)
    folder = write_checkpoint(tmp_path, config, random_weights(config), shards=SHARDS)
    shard = max(path.stat().st_size for path in folder.glob("*.safetensors"))
    command = [sys.executable, "-c", LOAD, str(folder), json.dumps({"device": "cpu"})]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    peak, held = json.loads(done.stdout)
    assert held > 1.5 * shard, "the model is not in memory"
    assert peak - held < shard
