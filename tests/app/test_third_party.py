"""Distributions as users get them: our wheel, and third-party plugins installed into an environment
of their own.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dise_adapters.embedded import CountdownPredictor
from tests.pages import titled
from tests.reference_llada import write_tokenizer

ROOT = Path(__file__).parents[2]

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

EACH = """
import contextlib, importlib, io, json, os, sys
import torch, transformers  # as every command does; each runs in a copy of this process

def told(args):
    from dise_app.cli.main import main

    sys.argv, out, err, code = ["dise", *args], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code or 0
    return [code, out.getvalue(), err.getvalue()]

for line in sys.stdin:
    if os.fork() == 0:
        importlib.invalidate_caches()  # what was installed since
        print(json.dumps([told(args) for args in json.loads(line)]), flush=True)
        os._exit(0)
    if os.wait()[1]:
        print("[]", flush=True)  # it told nothing
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


class Done(NamedTuple):
    """What one command came to."""

    returncode: int
    stdout: str
    stderr: str


class Environment:
    """A virtual environment that sees this one's packages, and what is installed into it."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        self.python = folder / "bin" / "python"
        site = self.run("import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
        parent = sysconfig.get_path("purelib")
        Path(site, "parent.pth").write_text(f"import site; site.addsitedir({parent!r})\n")
        self._site = Path(site)
        self._running: Any = None

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, "-c", script], capture_output=True, text=True, check=True
        )

    def install(self, name: str, code: str) -> None:
        """Install a module and its entry point, as pip leaves them."""
        (self._site / f"{name}.py").write_text(textwrap.dedent(code))
        info = self._site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[dise]\n{name} = {name}\n")

    def uninstall(self, name: str) -> None:
        (self._site / f"{name}.py").unlink()
        shutil.rmtree(self._site / f"{name}-1.0.dist-info")

    def install_folder(self, source: Path) -> None:
        self._pip("install", "--no-deps", "--no-build-isolation", "--no-index", str(source))

    def uninstall_folder(self, name: str) -> None:
        self._pip("uninstall", "--yes", name)

    def dise(self, *args: str | Path) -> Done:
        """Run one command."""
        return self.each(args)[0]

    def each(self, *commands: Sequence[str | Path]) -> list[Done]:
        """Run commands one after the other, in a new process."""
        if self._running is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self._running = subprocess.Popen(
                [self.python, "-c", EACH], stderr=subprocess.DEVNULL, **pipes
            )
        self._running.stdin.write(json.dumps([[*map(str, each)] for each in commands]) + "\n")
        self._running.stdin.flush()
        return [Done(*told) for told in json.loads(self._running.stdout.readline())]

    def close(self) -> None:
        """End the process whose copies run the commands."""
        if self._running is not None:
            self._running.communicate(timeout=60)

    def _pip(self, *args: str) -> None:
        subprocess.run(
            [self.python, "-m", "pip", "--disable-pip-version-check", *args],
            check=True,
            capture_output=True,
        )


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    made = Environment(tmp_path_factory.mktemp("environment"))
    yield made
    made.close()


def test_a_third_party_selector_works_by_name(environment: Environment) -> None:
    environment.install("every_other", SELECTOR)
    try:
        done, plugins = environment.each(
            ("score", "--response", "1+2=3", "--no-chat", "--selector", "every-other", "--json"),
            ("plugins", "--json"),
        )
        assert done.returncode == 0, done.stderr
        [output] = json.loads(done.stdout)["outputs"]
        assert output["score"]["num_positions"] == 3
        assert [token["selected"] for token in output["tokens"]] == [True, False, True, False, True]
        listed = json.loads(plugins.stdout)["plugins"]
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
        scored, written = environment.each(
            ("score", "--response", "1+2=3,3+4=7", "--no-chat", *names),
            ("generate", "83,18,75 -> 10", "--max-tokens", "8", *names),
        )
        assert scored.returncode == 0, scored.stderr
        [output] = json.loads(scored.stdout)["outputs"]
        assert (output["score"]["scorer"], output["score"]["selector"]) == (
            "mean-entropy",
            "every-3",
        )
        assert output["score"]["value"] < 0
        assert output["score"]["num_positions"] == 4
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
        environment.uninstall_folder("dise-entropy")


def pretrained_bert(folder: Path) -> float:
    """Write a small BERT as the published ones are, with the head of the next sentence and under
    the name of the masked language model; return the mean of its own log-probabilities of a, b and
    c between [CLS] and [SEP].
    """
    import torch
    from transformers import BertConfig, BertForPreTraining, BertTokenizer

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg"]
    BertTokenizer(vocab={name: i for i, name in enumerate(names)}).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(names), intermediate_size=48, initializer_range=0.3, **sizes)
    model = BertForPreTraining(config).eval()
    model.save_pretrained(folder)
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(fields | {"architectures": ["BertForMaskedLM"]}))
    with torch.inference_mode():
        logits = model(torch.tensor([[2, 5, 6, 7, 3]])).prediction_logits[0].double()
    return float(torch.log_softmax(logits, dim=-1)[[1, 2, 3], [5, 6, 7]].mean())


@pytest.mark.timeout(900)
def test_a_stranger_builds_the_plugins_page_from_an_empty_folder(
    environment: Environment, tmp_path: Path
) -> None:
    """A scorer, a selector, a length controller, a policy, a reviser and a BERT, each through its
    kit, by name, and beside an independent computation.
    """
    source, model = tmp_path / "package", tmp_path / "bert"
    source.mkdir()
    for name, text in titled((ROOT / "docs" / "plugins.md").read_text()).items():
        (source / name).write_text(text)
    environment.install_folder(source)
    try:
        tests = [environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", source]
        own = subprocess.run(tests, capture_output=True, text=True, check=False, cwd=source)
        assert own.returncode == 0, own.stdout
        assert "7 passed" in own.stdout
        expected = pretrained_bert(model)
        given = ("--response", "a b c", "--unfinished", "--selector", "full")
        text = ("score", *given, "--json", "--model", model)
        names = ("--length", "halving", "--unmasking", "apart", "--reviser", "weakest-token")
        write = ("83,18,75 -> 10", "--max-tokens", "32", "--scorer", "mean-entropy", "--json")
        plain, shadow, written = environment.each(
            text,
            (*text, "--scorer", "shadow"),
            ("generate", *write, *names, "--unmasking-setting", "gap=3"),
        )
        assert plain.returncode == shadow.returncode == written.returncode == 0, (
            plain.stderr + shadow.stderr + written.stderr
        )
        value = json.loads(plain.stdout)["outputs"][0]["score"]["value"]
        assert value == pytest.approx(expected, abs=1e-5)
        assert json.loads(shadow.stdout)["outputs"][0]["score"]["value"] != pytest.approx(value)
        [output] = json.loads(written.stdout)["outputs"]
        assert output["score"]["scorer"] == "mean-entropy"
        assert len(output["revisions"]) == 1
    finally:
        environment.uninstall_folder("dise-entropy")


def test_the_readmes_selector_installs_as_printed(environment: Environment, tmp_path: Path) -> None:
    for name, text in titled((ROOT / "README.md").read_text()).items():
        (tmp_path / name).write_text(text)
    environment.install_folder(tmp_path)
    try:
        done = environment.dise(
            "score", "--response", "1+2=3", "--selector", "every-second+last-3", "--json"
        )
        assert done.returncode == 0, done.stderr
        [output] = json.loads(done.stdout)["outputs"]
        selected = [token["selected"] for token in output["tokens"]]
        assert selected == [True, False, True, True, True]
    finally:
        environment.uninstall_folder("my-selectors")


@pytest.mark.parametrize(
    ("name", "code", "wanted", "texts"),
    [
        (
            "duplicate",
            DUPLICATE,
            "full",
            ["both claim 'full' in dise_selectors()", "'duplicate'", "'strategies'"],
        ),
        (
            "misspelt",
            MISSPELT,
            "every-other",
            ["plugin 'misspelt'", "dise_selektors", "Hooks: dise_engines, dise_length_controllers"],
        ),
        (
            "broken",
            BROKEN,
            "every-other",
            [
                "plugin 'broken' (distribution 'broken') cannot be imported",
                "a_package_that_nobody_has",
            ],
        ),
    ],
)
def test_a_broken_plugin_is_one_line_that_names_it_and_stops_only_its_own_names(
    environment: Environment, name: str, code: str, wanted: str, texts: list[str]
) -> None:
    environment.install(name, code)
    try:
        score = ("score", "--response", "1+2=3")
        done, unknown, listed, shown = environment.each(
            score, (*score, "--selector", wanted), ("plugins", "--json"), ("models",)
        )
        assert done.returncode == 0
        assert len(done.stderr.strip().splitlines()) == 1
        assert unknown.returncode > 0
        assert unknown.stdout == ""
        for text in texts:
            assert text in done.stderr
            assert text in unknown.stderr.splitlines()[-1]
        assert "dise plugins" in done.stderr
        assert listed.returncode == 1
        assert "prompt-last-K" in {row["name"] for row in json.loads(listed.stdout)["plugins"]}
        [problem] = json.loads(listed.stdout)["problems"]
        assert problem["plugin"] == name
        for text in texts:
            assert text in problem["problem"]
        assert listed.stderr.strip() == f"dise: {problem['problem']}"
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
        both, named = environment.each(text, (*text, "--adapter", "bert-two"))
        assert both.returncode == 2
        for name in (
            "'bert-one' of plugin 'bert_one'",
            "'bert-two' of plugin 'bert_two'",
            "--adapter NAME",
        ):
            assert name in both.stderr
        assert "uninstall" not in both.stderr
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
        write = ("generate", "abc", "--max-tokens", "4", *options)
        scored, written, unknown = environment.each(
            ("score", "--response", "abc", "--selector", "full", *options),
            write,
            (*write, "--engine", "auto"),
        )
        assert scored.returncode == 0, scored.stderr
        value = json.loads(scored.stdout)["outputs"][0]["score"]["value"]
        assert value == pytest.approx(expected, abs=1e-6)
        assert written.returncode == 0, written.stderr
        assert "unknown engine 'auto'. Known: plain, transformers, vllm" in unknown.stderr
    finally:
        environment.uninstall("bert_plain")
        environment.uninstall("plain_engine")


def test_an_adapter_that_fails_is_named_and_stops_nobody(
    environment: Environment, tmp_path: Path
) -> None:
    environment.install("failing", FAILING)
    try:
        bert(tmp_path)
        folder = CountdownPredictor.folder()
        listed, scored, unclaimed = environment.each(
            ("models", "--json"),
            ("score", "--response", "1+2=3", "--model", folder),
            ("score", "--response", "abc", "--model", tmp_path),
        )
        assert listed.returncode == 1
        assert {"countdown": True, "failing": False}.items() <= {
            row["name"]: row["by_name"] for row in json.loads(listed.stdout)["models"]
        }.items()
        assert (
            "Adapter 'failing' of plugin 'failing' fails in claims(): OSError: no route to the hub"
            in listed.stderr
        )
        assert scored.returncode == 0, scored.stderr
        assert unclaimed.returncode == 2
        assert "fails in claims(): OSError: no route to the hub" in unclaimed.stderr
    finally:
        environment.uninstall("failing")


def test_the_wheel_holds_its_packages_and_the_models(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT,
        check=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"dise", "dise_core", "dise_strategies", "dise_adapters", "dise_app"}
    for model in ("countdown", "countdown_blocks", "word_problems"):
        folder = f"dise_adapters/embedded/{model}/"
        assert {
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
        } <= {name.removeprefix(folder) for name in names if name.startswith(folder)}
    assert wheel.stat().st_size < 12 * 2**20
    [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
    description = zipfile.ZipFile(wheel).read(metadata).decode().partition("\n\n")[2]
    assert "## Install" in description
    links = re.findall(r"\]\(([^)]+)\)", description)
    assert links
    assert all(link.startswith("https://") for link in links), links
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
        scored, listed = environment.each((*text, "--model", tmp_path), ("plugins",))
        assert scored.returncode == 0, scored.stderr
        value = json.loads(scored.stdout)["outputs"][0]["score"]["value"]
        assert value == pytest.approx(expected, abs=1e-5)
        assert "denoising-qwen3" in listed.stdout
    finally:
        environment.uninstall("denoising_qwen3")
