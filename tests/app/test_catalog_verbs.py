"""dise plugins, dise models, and how fast the command starts."""

import json
import subprocess
import sys
from collections.abc import Callable

from tests.app.conftest import Run

Dise = Callable[..., Run]


def test_plugins_lists_every_name_with_its_plugin(dise: Dise) -> None:
    rows = json.loads(dise("plugins", "--json").out)["plugins"]
    named = {(row["kind"], row["name"]): row["plugin"] for row in rows}
    assert named["scorer", "dise"] == "strategies"
    assert named["selector", "prompt-last-K"] == "strategies"
    assert named["mask predictor", "llada"] == "adapters"
    assert all(row["about"] for row in rows)
    assert "last-K" in dise("plugins").out


def test_models_tells_names_from_adapters(dise: Dise) -> None:
    rows = {row["name"]: row["by_name"] for row in json.loads(dise("models", "--json").out)["models"]}
    assert rows == {
        name: name == "countdown" for name in ("countdown", "dream", "llada", "llama", "vllm-canvas", "vllm-server")
    }
    assert "countdown" in dise("models").out


def test_neither_the_library_nor_the_help_imports_a_heavy_package() -> None:
    script = (
        "import sys, dise_core, dise_strategies.plugin, dise_adapters.plugin, dise_app.cli.main\n"
        "print([name for name in ('torch', 'transformers', 'fastapi', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
