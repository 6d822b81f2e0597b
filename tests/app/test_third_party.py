"""Distributions as users get them: our wheel, and third-party plugins installed into an environment
of their own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from pathlib import Path

import pytest

import dise_adapters
from tests.reference_llada import write_tokenizer

ROOT = Path(__file__).parents[2]

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{name}"
version = "1.0"
[project.entry-points.dise]
{name} = "{name}"
[tool.hatch.build.targets.wheel]
only-include = ["{name}.py"]
"""

SELECTOR = """
from dise_core import Selector, hookimpl

class EveryOther(Selector):
    '''Selects every other token of the response.'''
    def select(self, sequence):
        return sequence.mask_of(sequence.response_positions[::2])

@hookimpl
def dise_selectors():
    return {"every-other": EveryOther}
"""

DUPLICATE = SELECTOR.replace("every-other", "full")
MISSPELT = SELECTOR.replace("def dise_selectors", "def dise_selektors")
BROKEN = "import a_package_that_nobody_has"

BERT = """
from dise_adapters.families.family import Family
from dise_adapters.predictor import predictor_of
from dise_core import hookimpl

BERT = Family(
    about="A masked language model of the BERT family.",
    architectures=("BertForMaskedLM",),
    model_class="BertForMaskedLM",
)

@hookimpl
def dise_mask_predictors():
    return {{"{name}": predictor_of(BERT)}}
"""

QWEN3 = """
from dise_adapters.families.a2d import qwen3_settings
from dise_adapters.families.family import Family
from dise_adapters.predictor import predictor_of
from dise_core import hookimpl

FAMILY = Family(
    about="A Qwen3 that somebody taught to denoise.",
    architectures=("DenoisingQwen3",),
    model_class="Qwen3ForCausalLM",
    translate=qwen3_settings,
)

@hookimpl
def dise_mask_predictors():
    return {"denoising-qwen3": predictor_of(FAMILY)}
"""

ENGINE = """
import torch
import transformers
from dise_core import Backend, ModelInfo, hookimpl
from dise_core.testing import naive_readout

class Reader:
    room = None

    def __init__(self, model):
        self.model = model

    def read(self, reads):
        return [self.answer(read) for read in reads]

    @torch.inference_mode()
    def answer(self, read):
        logits = self.model(torch.from_numpy(read.token_ids)[None]).logits[0]
        return naive_readout(logits.numpy()[read.positions], read)

class Plain(Backend):
    'One text at a time, by transformers as it is, in float64.'

    @classmethod
    def open(cls, checkpoint, config):
        model_class = getattr(transformers, checkpoint.family.model_class)
        return Reader(model_class.from_pretrained(checkpoint.folder).double().eval())

@hookimpl
def dise_engines():
    return {"plain": Plain}
"""

FAILING = """
from dise_core import MaskPredictor, hookimpl

class Failing(MaskPredictor):
    'Fails when it is asked.'

    @classmethod
    def claims(cls, model):
        raise OSError("no route to the hub")

    @classmethod
    def load(cls, model, config):
        raise OSError("no route to the hub")

    def read(self, reads):
        return []

@hookimpl
def dise_mask_predictors():
    return {"failing": Failing}
"""


class Environment:
    """A virtual environment that sees this one's packages, and what is installed into it."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        self.python = folder / "bin" / "python"
        site = self.run("import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
        parent = sysconfig.get_path("purelib")
        Path(site, "parent.pth").write_text(f"import site; site.addsitedir({parent!r})\n")
        self._sources = folder / "sources"

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, "-c", script], capture_output=True, text=True, check=True
        )

    def install(self, name: str, code: str) -> None:
        source = self._sources / name
        source.mkdir(parents=True)
        (source / "pyproject.toml").write_text(PYPROJECT.format(name=name))
        (source / f"{name}.py").write_text(textwrap.dedent(code))
        self.install_folder(source)

    def install_folder(self, source: Path) -> None:
        self._pip("install", "--no-deps", "--no-build-isolation", "--no-index", str(source))

    def uninstall(self, name: str) -> None:
        self._pip("uninstall", "--yes", name)

    def dise(self, *args: str | Path) -> subprocess.CompletedProcess[str]:
        command = [self.python, "-c", "from dise_app.cli.main import main; main()", *args]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _pip(self, *args: str) -> None:
        subprocess.run(
            [self.python, "-m", "pip", "--disable-pip-version-check", *args],
            check=True,
            capture_output=True,
        )


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment"))


def test_a_third_party_selector_works_by_name(environment: Environment) -> None:
    environment.install("every_other", SELECTOR)
    try:
        done = environment.dise(
            "score", "--response", "1+2=3", "--no-chat", "--selector", "every-other", "--json"
        )
        assert done.returncode == 0, done.stderr
        [output] = json.loads(done.stdout)["outputs"]
        assert output["score"]["num_positions"] == 3
        assert [token["selected"] for token in output["tokens"]] == [True, False, True, False, True]
        listed = json.loads(environment.dise("plugins", "--json").stdout)["plugins"]
        about = "Selects every other token of the response."
        assert {
            "kind": "selector",
            "name": "every-other",
            "plugin": "every_other",
            "about": about,
        } in listed
    finally:
        environment.uninstall("every_other")


def test_the_example_plugin_works_by_name_and_its_own_tests_pass(
    environment: Environment, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "examples" / "plugin", source := tmp_path / "plugin")
    environment.install_folder(source)
    try:
        tests = [
            environment.python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            source / "tests",
        ]
        own = subprocess.run(tests, capture_output=True, text=True, check=False, cwd=source)
        assert own.returncode == 0, own.stdout
        assert "3 passed" in own.stdout
        names = ("--scorer", "mean-entropy", "--selector", "every-3", "--json")
        scored = environment.dise("score", "--response", "1+2=3,3+4=7", "--no-chat", *names)
        assert scored.returncode == 0, scored.stderr
        [output] = json.loads(scored.stdout)["outputs"]
        assert (output["score"]["scorer"], output["score"]["selector"]) == (
            "mean-entropy",
            "every-3",
        )
        assert output["score"]["value"] < 0
        assert output["score"]["num_positions"] == 4
        written = environment.dise("generate", "83,18,75 -> 10", "--max-tokens", "8", *names)
        assert written.returncode == 0, written.stderr
        assert json.loads(written.stdout)["outputs"][0]["score"]["scorer"] == "mean-entropy"
        in_python = environment.run(
            "from dise_core import LLM, ScoringParams\n"
            "params = ScoringParams(scorer='mean-entropy', selector='every-3')\n"
            "[answer] = LLM('countdown').score('', '1+2=3,3+4=7', params, chat=False)\n"
            "print(answer.outputs[0].score.value)"
        )
        assert float(in_python.stdout) == pytest.approx(output["score"]["value"])
    finally:
        environment.uninstall("dise-entropy")


@pytest.mark.parametrize(
    ("name", "code", "texts"),
    [
        (
            "duplicate",
            DUPLICATE,
            ["both claim 'full' in dise_selectors()", "'duplicate'", "'strategies'"],
        ),
        (
            "misspelt",
            MISSPELT,
            ["plugin 'misspelt'", "dise_selektors", "Hooks: dise_engines, dise_length_controllers"],
        ),
        (
            "broken",
            BROKEN,
            [
                "plugin 'broken' (distribution 'broken') cannot be imported",
                "a_package_that_nobody_has",
            ],
        ),
    ],
)
def test_a_broken_plugin_is_one_line_that_names_it(
    environment: Environment, name: str, code: str, texts: list[str]
) -> None:
    environment.install(name, code)
    try:
        done = environment.dise("score", "--response", "1+2=3")
        assert done.returncode == 1
        assert done.stdout == ""
        assert len(done.stderr.strip().splitlines()) == 1
        for text in texts:
            assert text in done.stderr
        assert "dise plugins" in done.stderr
        listed = environment.dise("plugins", "--json")
        assert listed.returncode == 1
        assert "prompt-last-K" in {row["name"] for row in json.loads(listed.stdout)["plugins"]}
        [problem] = json.loads(listed.stdout)["problems"]
        assert problem["plugin"] == name
        for text in texts:
            assert text in problem["problem"]
        assert listed.stderr.strip() == f"dise: {problem['problem']}"
        shown = environment.dise("models")
        assert shown.returncode == 1
        assert "countdown" in shown.stdout
        assert shown.stderr == listed.stderr
    finally:
        environment.uninstall(name)


def bert(folder: Path) -> float:
    """Write a small BERT, and return the mean of its own log-probabilities of abc in "abc"."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    sizes = {
        "max_position_embeddings": 64,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
    }
    model = BertForMaskedLM(
        BertConfig(vocab_size=50, mask_token_id=49, initializer_range=0.3, **sizes)
    ).eval()
    model.save_pretrained(folder)
    write_tokenizer(folder, 50)
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(torch.tensor([[0, 1, 2]])).logits[0].double(), dim=-1)
    return float(logprobs[[0, 1, 2], [0, 1, 2]].mean())


def test_a_third_partys_bert_is_loaded_by_its_own_adapter_beside_ours(
    environment: Environment, tmp_path: Path
) -> None:
    expected = bert(tmp_path)
    text = (
        "score",
        "--response",
        "abc",
        "--no-chat",
        "--selector",
        "full",
        "--json",
        "--model",
        tmp_path,
    )
    unclaimed = environment.dise(*text)
    assert unclaimed.returncode == 2
    assert "model_type 'bert' and architectures BertForMaskedLM" in unclaimed.stderr
    environment.install("bert_one", BERT.format(name="bert-one"))
    try:
        alone = environment.dise(*text)
        assert alone.returncode == 0, alone.stderr
        assert json.loads(alone.stdout)["outputs"][0]["score"]["value"] == pytest.approx(
            expected, abs=1e-4
        )
        environment.install("bert_two", BERT.format(name="bert-two"))
        both = environment.dise(*text)
        assert both.returncode == 2
        for name in (
            "'bert-one' of plugin 'bert_one'",
            "'bert-two' of plugin 'bert_two'",
            "--adapter NAME",
        ):
            assert name in both.stderr
        assert "uninstall" not in both.stderr
        named = environment.dise(*text, "--adapter", "bert-two")
        assert named.returncode == 0, named.stderr
        value = json.loads(named.stdout)["outputs"][0]["score"]["value"]
        assert value == pytest.approx(expected, abs=1e-4)
    finally:
        environment.uninstall("bert_one")
        environment.uninstall("bert_two")


def test_a_third_partys_engine_runs_a_third_partys_family(
    environment: Environment, tmp_path: Path
) -> None:
    expected = bert(tmp_path)
    environment.install("bert_plain", BERT.format(name="bert-plain"))
    environment.install("plain_engine", ENGINE)
    try:
        options = ("--model", tmp_path, "--engine", "plain", "--no-chat", "--json")
        scored = environment.dise("score", "--response", "abc", "--selector", "full", *options)
        assert scored.returncode == 0, scored.stderr
        value = json.loads(scored.stdout)["outputs"][0]["score"]["value"]
        assert value == pytest.approx(expected, abs=1e-6)
        written = environment.dise("generate", "abc", "--max-tokens", "4", *options)
        assert written.returncode == 0, written.stderr
        ours = environment.dise("generate", "abc", "--max-tokens", "4", *options, "--engine=auto")
        assert "unknown engine 'auto'. Known: plain, transformers, vllm" in ours.stderr
    finally:
        environment.uninstall("bert_plain")
        environment.uninstall("plain_engine")


def test_an_adapter_that_fails_is_named_and_stops_nobody(
    environment: Environment, tmp_path: Path
) -> None:
    environment.install("failing", FAILING)
    try:
        listed = environment.dise("models", "--json")
        assert listed.returncode == 1
        assert {"countdown": True, "failing": False}.items() <= {
            row["name"]: row["by_name"] for row in json.loads(listed.stdout)["models"]
        }.items()
        assert (
            "Adapter 'failing' of plugin 'failing' fails in claims(): OSError: no route to the hub"
            in listed.stderr
        )
        folder = Path(dise_adapters.__file__).parent / "families" / "countdown"
        scored = environment.dise("score", "--response", "1+2=3", "--model", folder)
        assert scored.returncode == 0, scored.stderr
        bert(tmp_path)
        unclaimed = environment.dise("score", "--response", "abc", "--model", tmp_path)
        assert unclaimed.returncode == 2
        assert "fails in claims(): OSError: no route to the hub" in unclaimed.stderr
    finally:
        environment.uninstall("failing")


def test_the_wheel_holds_four_packages_and_the_model(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT,
        check=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"dise_core", "dise_strategies", "dise_adapters", "dise_app"}
    countdown = {
        name.rsplit("/", 1)[1]
        for name in names
        if name.startswith("dise_adapters/families/countdown/")
    }
    assert {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    } <= countdown
    assert wheel.stat().st_size < 12 * 2**20
    for package in tops:
        assert f"{package}/py.typed" in names


def denoising_qwen3(folder: Path) -> float:
    """Write a small Qwen3 under a name of its own, and return the mean of its own log-probabilities
    of abc in "abc", by plain transformers with full attention.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "head_dim": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen3Config(
        vocab_size=50, max_position_embeddings=64, initializer_range=0.3, **sizes, **heads
    )
    config.is_causal = False
    model = Qwen3ForCausalLM(config).eval()
    for layer in model.model.layers:
        torch.nn.init.uniform_(layer.self_attn.q_norm.weight, 0.5, 1.5)
    model.save_pretrained(folder)
    fields = json.loads((folder / "config.json").read_text())
    names = {"architectures": ["DenoisingQwen3"], "model_type": "denoising-qwen3"}
    (folder / "config.json").write_text(json.dumps(fields | names | {"mask_token_id": 49}))
    write_tokenizer(folder, 50)
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(torch.tensor([[0, 1, 2]])).logits[0].double(), dim=-1)
    return float(logprobs[[0, 1, 2], [0, 1, 2]].mean())


def test_a_third_partys_family_loads_a_qwen3_by_name(
    environment: Environment, tmp_path: Path
) -> None:
    expected = denoising_qwen3(tmp_path)
    environment.install("denoising_qwen3", QWEN3)
    try:
        text = ("score", "--response", "abc", "--no-chat", "--selector", "full", "--json")
        scored = environment.dise(*text, "--model", tmp_path)
        assert scored.returncode == 0, scored.stderr
        value = json.loads(scored.stdout)["outputs"][0]["score"]["value"]
        assert value == pytest.approx(expected, abs=1e-5)
        assert "denoising-qwen3" in environment.dise("plugins").stdout
    finally:
        environment.uninstall("denoising_qwen3")
