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
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from typing import Literal

import torch
import transformers
from dise_core import Backend, ModelInfo, hookimpl
from dise_core.params.base import Params
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

class Options(Params):
    'What only this engine takes.'

    significand: Literal[24, 53] = 53
    'Bits of the significand that it computes with.'

class Plain(Backend):
    'One text at a time, by transformers as it is, in float64.'

    options = Options

    @classmethod
    def open(cls, checkpoint, config):
        model_class = getattr(transformers, checkpoint.family.model_class)
        model = model_class.from_pretrained(checkpoint.folder).eval()
        return Reader(model.double() if cls.options_of(config).significand == 53 else model)

@hookimpl
def dise_engines():
    return {"plain": Plain}
"""

GUEST = """
from fastapi import APIRouter
from pydantic import BaseModel

from dise_app.server.service import Service
from dise_core import hookimpl
from dise_core.params.base import Params
from dise_eval.datasets.dataset import Dataset
from dise_eval.graders import Grader, Verdict


class Parity(Grader):
    version = "parity-1"

    def __init__(self, truth, mode):
        self.truth = truth

    def grade(self, response):
        return Verdict(len(response) % 2 == self.truth, response, "its length")


LENGTHS = Dataset(name="lengths", prompt="text", answer="odd", grader=Parity)


class Text(BaseModel):
    text: str


class Counting(Params):
    weight: int = 1
    'What a token counts.'


def count(text: str, twice: bool = False) -> None:
    'Count the characters of a text.'
    print(len(text) * (1 + twice))


def add_count(router: APIRouter, service: Service) -> None:
    @router.post("/v1/count")
    async def counted(body: Text) -> dict[str, int]:
        weight = service.options(Counting).weight
        return {"count": weight * len(service.llm.predictor.tokenizer.encode(body.text))}


def add_taken(router: APIRouter, service: Service) -> None:
    @router.post("/v1/score")
    async def score() -> str:
        return "mine"


@hookimpl
def dise_commands():
    return {"count": "guest:count", "lost": "guest:lost", "odd": 3}


@hookimpl
def dise_datasets():
    return {"lengths": LENGTHS}


@hookimpl
def dise_routes():
    return {"count": "guest:add_count", "lost": "guest:lost", "taken": "guest:add_taken"}


@hookimpl
def dise_route_options():
    return {"count": Counting}
"""

SERVED = """
import json
from fastapi.testclient import TestClient
from dise_app.server.app import create_app
from dise_app.server.limits import Limits
from dise_app.server.service import Service
from dise_core import AsyncLLM

service = Service(Limits(), AsyncLLM("countdown"), {"weight": 3})
with TestClient(create_app(service)) as client:
    body = '{"text": "1+2=3"}'
    counted = client.post("/v1/count", json=json.loads(body))
    plain = client.post("/v1/count", content=body, headers={"Content-Type": "text/plain"})
    scored = client.post("/v1/score", json={"response": "1+2=3"})
    print(json.dumps([counted.json(), plain.status_code, scored.json()["object"]]))
"""

EACH = """
import contextlib, importlib, io, json, os, sys
import torch, transformers  # as every command does; each runs in a copy of this process

def told(args):
    from dise_app.cli.main import run

    sys.argv, out, err, code = ["dise", *args], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run()
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

    @property
    def output(self) -> Any:
        """The only answer that it printed as JSON."""
        assert self.returncode == 0, self.stderr
        [output] = json.loads(self.stdout)["outputs"]
        return output

    @property
    def value(self) -> float:
        return float(self.output["score"]["value"])


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

    @contextmanager
    def installed(self, **modules: str) -> Iterator[None]:
        """Install modules, each a plugin, as pip leaves them; remove them afterwards."""
        for name, code in modules.items():
            (self._site / f"{name}.py").write_text(code)
            info = self._site / f"{name}-1.0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text(f"[dise]\n{name} = {name}\n")
        try:
            yield
        finally:
            for name in modules:
                (self._site / f"{name}.py").unlink()
                shutil.rmtree(self._site / f"{name}-1.0.dist-info")

    @contextmanager
    def built(self, source: Path, name: str) -> Iterator[None]:
        """Install a folder by pip; remove the distribution of that name afterwards."""
        self._pip("install", "--no-deps", "--no-build-isolation", "--no-index", str(source))
        try:
            yield
        finally:
            self._pip("uninstall", "--yes", name)

    def tests_of(self, folder: Path) -> str:
        """Return what a package's own tests print; they pass."""
        tests = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder]
        done = subprocess.run(tests, capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, done.stdout
        return done.stdout

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


FULL = ("score", "--response", "abc", "--no-chat", "--selector", "full", "--json")


def test_a_third_party_selector_works_by_name(environment: Environment) -> None:
    with environment.installed(every_other=SELECTOR):
        done, plugins = environment.each(
            ("score", "--response", "1+2=3", "--no-chat", "--selector", "every-other", "--json"),
            ("plugins", "--json"),
        )
        assert done.output["score"]["num_positions"] == 3
        selected = [token["selected"] for token in done.output["tokens"]]
        assert selected == [True, False, True, False, True]
        about = "Selects every other token of the response."
        row = {
            "kind": "selector",
            "name": "every-other",
            "plugin": "every_other",
            "suits": "",
            "about": about,
        }
        assert row in json.loads(plugins.stdout)["plugins"]


def test_the_example_plugin_works_by_name_and_its_own_tests_pass(
    environment: Environment, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "examples" / "plugin", source := tmp_path / "plugin")
    with environment.built(source, "dise-entropy"):
        assert "3 passed" in environment.tests_of(source)
        names = ("--scorer", "mean-entropy", "--selector", "every-3", "--json")
        scored, written = environment.each(
            ("score", "--response", "1+2=3,3+4=7", "--no-chat", *names),
            ("generate", "83,18,75 -> 10", "--max-tokens", "8", *names),
        )
        score = scored.output["score"]
        assert (score["scorer"], score["selector"]) == ("mean-entropy", "every-3")
        assert (score["value"] < 0, score["num_positions"]) == (True, 4)
        assert written.output["score"]["scorer"] == "mean-entropy"
        in_python = environment.run(
            "from dise_core import LLM, ScoringParams\n"
            "params = ScoringParams(scorer='mean-entropy', selector='every-3')\n"
            "[answer] = LLM('countdown').score('', '1+2=3,3+4=7', params, chat=False)\n"
            "print(answer.outputs[0].score.value)"
        )
        assert float(in_python.stdout) == pytest.approx(score["value"])


def test_the_example_of_likelihoods_scores_by_name_and_its_own_tests_pass(
    environment: Environment, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "examples" / "likelihoods", source := tmp_path / "likelihoods")
    text = ("score", "--prompt", "83,18,75 -> 10", "--response", "18+75=9", "--json", "--scorer")
    with environment.built(source, "dise-likelihoods"):
        assert "18 passed" in environment.tests_of(source)
        exact, drawn, greedy = environment.each(
            (*text, "any-order"),
            (*text, "any-order", "--scorer-setting", "exact_up_to=2"),
            (*text, "greedy-path"),
        )
    assert exact.output["score"]["bounds"]["upper"] == exact.value
    bounds = drawn.output["score"]["bounds"]
    assert bounds["lower"] < drawn.value < bounds["upper"]
    assert greedy.value < 0
    assert "log_likelihood" not in greedy.output["score"]
    unknown = environment.dise(*text, "any-order")
    assert "unknown scorer 'any-order'" in unknown.stderr


def mean_logprob(logits: Any, token_ids: Sequence[int]) -> float:
    """Return the mean log-probability of the tokens, each under its row of the logits."""
    logprobs = logits.double().log_softmax(dim=-1)
    return float(logprobs[range(len(token_ids)), list(token_ids)].mean())


def set_config(folder: Path, **fields: object) -> None:
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | fields))


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48}


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
    config = BertConfig(
        vocab_size=len(names), num_attention_heads=2, initializer_range=0.3, **SMALL
    )
    model = BertForPreTraining(config).eval()
    model.save_pretrained(folder)
    set_config(folder, architectures=["BertForMaskedLM"])
    with torch.inference_mode():
        logits = model(torch.tensor([[2, 5, 6, 7, 3]])).prediction_logits[0]
    return mean_logprob(logits[1:4], (5, 6, 7))


@pytest.mark.timeout(900)
def test_a_stranger_builds_the_plugins_page_from_an_empty_folder(
    environment: Environment, tmp_path: Path
) -> None:
    """A scorer, a selector, a length controller, a policy and a reviser, each through its kit, and
    by name.
    """
    for name, text in titled((ROOT / "docs" / "plugins.md").read_text()).items():
        (tmp_path / name).write_text(text)
    with environment.built(tmp_path, "dise-entropy"):
        assert "5 passed" in environment.tests_of(tmp_path)
        names = ("--length", "halving", "--unmasking", "apart", "--reviser", "weakest-token")
        write = ("83,18,75 -> 10", "--max-tokens", "32", "--scorer", "mean-entropy", "--json")
        output = environment.dise("generate", *write, *names, "--unmasking-setting", "gap=3").output
        assert output["score"]["scorer"] == "mean-entropy"
        assert len(output["revisions"]) == 1


@pytest.mark.timeout(900)
def test_the_example_of_a_masked_model_passes_its_kit_and_scores_as_bert_alone(
    environment: Environment, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "examples" / "masked_lm", source := tmp_path / "masked_lm")
    expected = pretrained_bert(model := tmp_path / "bert")
    with environment.built(source, "dise-mlm"):
        assert "2 passed" in environment.tests_of(source)
        given = ("--response", "a b c", "--unfinished", "--selector", "full")
        text = ("score", *given, "--json", "--model", model)
        plain, shadow = environment.each(text, (*text, "--scorer", "shadow"))
        assert plain.value == pytest.approx(expected, abs=1e-5)
        assert shadow.value != pytest.approx(plain.value)


def test_the_readmes_selector_installs_as_printed(environment: Environment, tmp_path: Path) -> None:
    for name, text in titled((ROOT / "README.md").read_text()).items():
        (tmp_path / name).write_text(text)
    with environment.built(tmp_path, "my-selectors"):
        done = environment.dise(
            "score", "--response", "1+2=3", "--selector", "every-second+last-3", "--json"
        )
        selected = [token["selected"] for token in done.output["tokens"]]
        assert selected == [True, False, True, True, True]


CLASH = ("both claim 'full' in dise_selectors()", "'duplicate'", "'strategies'")
HOOK = ("plugin 'misspelt'", "dise_selektors", "Hooks: dise_commands, dise_constraints")
LOST = ("plugin 'broken' (distribution 'broken') cannot be imported", "a_package_that_nobody_has")


@pytest.mark.parametrize(
    ("name", "code", "wanted", "texts"),
    [
        ("duplicate", SELECTOR.replace("every-other", "full"), "full", CLASH),
        ("misspelt", SELECTOR.replace("_selectors", "_selektors"), "every-other", HOOK),
        ("broken", "import a_package_that_nobody_has", "every-other", LOST),
    ],
)
def test_a_broken_plugin_is_one_line_that_names_it_and_stops_only_its_own_names(
    environment: Environment, name: str, code: str, wanted: str, texts: Sequence[str]
) -> None:
    with environment.installed(**{name: code}):
        score = ("score", "--response", "1+2=3")
        done, unknown, listed, shown = environment.each(
            score, (*score, "--selector", wanted), ("plugins", "--json"), ("models",)
        )
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (0, 1)
        assert "dise plugins" in done.stderr
        assert unknown.returncode > 0
        assert unknown.stdout == ""
        record = json.loads(listed.stdout)
        [problem] = record["problems"]
        for text in texts:
            assert text in done.stderr
            assert text in unknown.stderr.splitlines()[-1]
            assert text in problem["problem"]
        assert (listed.returncode, problem["plugin"]) == (1, name)
        assert "prompt-last-K" in {row["name"] for row in record["plugins"]}
        assert listed.stderr.strip() == f"dise: {problem['problem']}"
        assert (shown.returncode, shown.stderr) == (1, listed.stderr)
        assert "countdown" in shown.stdout


def bert(folder: Path) -> float:
    """Write a small BERT, and return the mean of its own log-probabilities of abc in "abc"."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    sizes = SMALL | {"max_position_embeddings": 64, "num_attention_heads": 2}
    config = BertConfig(vocab_size=50, mask_token_id=49, initializer_range=0.3, **sizes)
    model = BertForMaskedLM(config).eval()
    model.save_pretrained(folder)
    write_tokenizer(folder, 50)
    with torch.inference_mode():
        return mean_logprob(model(torch.tensor([[0, 1, 2]])).logits[0], (0, 1, 2))


def test_a_third_partys_bert_is_loaded_by_its_own_adapter_beside_ours(
    environment: Environment, tmp_path: Path
) -> None:
    expected, text = bert(tmp_path), (*FULL, "--model", tmp_path)
    unclaimed = environment.dise(*text)
    assert unclaimed.returncode == 2
    assert "model_type 'bert' and architectures BertForMaskedLM" in unclaimed.stderr
    with environment.installed(bert_one=BERT.format(name="bert-one")):
        assert environment.dise(*text).value == pytest.approx(expected, abs=1e-4)
        with environment.installed(bert_two=BERT.format(name="bert-two")):
            both, named = environment.each(text, (*text, "--adapter", "bert-two"))
    assert both.returncode == 2
    assert "'bert-one' of plugin 'bert_one'" in both.stderr
    assert "'bert-two' of plugin 'bert_two'" in both.stderr
    assert "--adapter NAME" in both.stderr
    assert "uninstall" not in both.stderr
    assert named.value == pytest.approx(expected, abs=1e-4)


def test_a_third_partys_engine_runs_a_third_partys_family(
    environment: Environment, tmp_path: Path
) -> None:
    expected = bert(tmp_path)
    with environment.installed(bert_plain=BERT.format(name="bert-plain"), plain_engine=ENGINE):
        options = ("--model", tmp_path, "--engine", "plain")
        write = ("generate", "abc", "--max-tokens", "4", "--no-chat", *options)
        scored, rounded, written, unknown, bad, alien = environment.each(
            (*FULL, *options),
            (*FULL, *options, "--significand", "24"),
            (*write, "--json"),
            (*write, "--engine", "auto"),
            (*write, "--significand", "25"),
            (*write, "--significand", "24", "--engine", "transformers"),
        )
    assert scored.value == pytest.approx(expected, abs=1e-6)
    assert rounded.value == pytest.approx(scored.value, abs=1e-4)
    assert rounded.value != scored.value
    assert alien.stderr == "dise: significand needs engine='plain'\n"
    assert bad.stderr == "dise: significand=25: Input should be 24 or 53\n"
    assert written.returncode == 0, written.stderr
    assert "unknown engine 'auto'. Known: plain, transformers, vllm" in unknown.stderr


def test_a_guest_adds_a_verb_a_route_and_a_data_set_and_its_broken_ones_break_nothing_else(
    environment: Environment, tmp_path: Path
) -> None:
    data, output = tmp_path / "lengths.jsonl", tmp_path / "run"
    rows = [{"text": "83,18,75 -> 10", "odd": odd, "response": "18+75-83"} for odd in (0, 1)]
    data.write_text("\n".join(map(json.dumps, rows)))
    evaluate = ("eval", "given", "--dataset", "lengths", "--data", data, "--score", "dise")
    with environment.installed(guest=GUEST):
        helped, serve, bad, counted, lost, odd, unknown, scored, graded = environment.each(
            ("--help",),
            ("serve", "--help"),
            ("serve", "--joint", "--weight", "x"),
            ("count", "abc", "--twice"),
            ("lost", "--whatever", "3"),
            ("odd",),
            ("losst",),
            ("score", "--response", "1+2=3"),
            (*evaluate, "--output", output),
        )
        served = environment.run(SERVED)
    assert graded.returncode == 0, graded.stderr
    assert "parity-1" in (output / "results.json").read_text()
    assert re.search(r"^  count +Count the characters of a text\.$", helped.stdout, re.M)
    assert re.search(r"^  lost +Broken: plugin 'guest': 'guest:lost'", helped.stdout, re.M)
    assert re.search(r"^  eval ", helped.stdout, re.M)
    assert re.search(r"--weight +INTEGER +What a token counts\.", serve.stdout)
    assert "Invalid value for '--weight'" in bad.stderr
    assert (counted.returncode, counted.stdout) == (0, "6\n")
    assert lost.returncode == odd.returncode == 1
    assert lost.stderr.startswith("dise: plugin 'guest': 'guest:lost' cannot be imported: Attr")
    assert odd.stderr.startswith("dise: plugin 'guest': the verb 'odd' cannot be made: ")
    assert unknown.returncode == 2
    assert (scored.returncode, scored.stderr) == (0, "")
    assert json.loads(served.stdout) == [{"count": 15}, 415, "list"]
    assert "plugin 'guest': 'guest:lost' cannot be imported" in served.stderr
    assert "plugin 'guest': POST /v1/score is a route already" in served.stderr


def test_an_adapter_that_fails_is_named_and_stops_nobody(
    environment: Environment, tmp_path: Path
) -> None:
    bert(tmp_path)
    with environment.installed(failing=FAILING):
        listed, scored, unclaimed = environment.each(
            ("models", "--json"),
            ("score", "--response", "1+2=3", "--model", CountdownPredictor.folder()),
            ("score", "--response", "abc", "--model", tmp_path),
        )
    by_name = {row["name"]: row["by_name"] for row in json.loads(listed.stdout)["models"]}
    assert (listed.returncode, by_name["countdown"], by_name["failing"]) == (1, True, False)
    failure = "fails in claims(): OSError: no route to the hub"
    assert f"Adapter 'failing' of plugin 'failing' {failure}" in listed.stderr
    assert scored.returncode == 0, scored.stderr
    assert unclaimed.returncode == 2
    assert failure in unclaimed.stderr


def test_the_wheel_holds_its_packages_and_the_models(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT,
        check=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    engine = {"dise", "dise_core", "dise_strategies", "dise_adapters", "dise_app"}
    assert tops == engine | {"dise_eval", "dise_decide", "dise_cluster"}
    for model in ("countdown", "countdown_blocks", "word_problems"):
        folder = f"dise_adapters/embedded/{model}/"
        files = "config.json model.safetensors tokenizer.json tokenizer_config.json"
        assert {folder + file for file in [*files.split(), "chat_template.jinja"]} <= {*names}
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
    sizes = SMALL | {"head_dim": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen3Config(vocab_size=50, max_position_embeddings=64, initializer_range=0.3, **sizes)
    config.is_causal = False
    model = Qwen3ForCausalLM(config).eval()
    for layer in model.model.layers:
        torch.nn.init.uniform_(layer.self_attn.q_norm.weight, 0.5, 1.5)
    model.save_pretrained(folder)
    names = {"architectures": ["DenoisingQwen3"], "model_type": "denoising-qwen3"}
    set_config(folder, **names, mask_token_id=49)
    write_tokenizer(folder, 50)
    with torch.inference_mode():
        return mean_logprob(model(torch.tensor([[0, 1, 2]])).logits[0], (0, 1, 2))


def test_a_third_partys_family_loads_a_qwen3_by_name(
    environment: Environment, tmp_path: Path
) -> None:
    expected = denoising_qwen3(tmp_path)
    with environment.installed(denoising_qwen3=QWEN3):
        scored, listed = environment.each((*FULL, "--model", tmp_path), ("plugins",))
    assert scored.value == pytest.approx(expected, abs=1e-5)
    assert "denoising-qwen3" in listed.stdout
