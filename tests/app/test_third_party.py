"""Distributions as users get them: our wheel, and third-party plugins installed into an environment
of their own.
"""

from __future__ import annotations

import json
import os
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

from tests.pages import ROOT, titled
from tests.reference_a2d import MASK, ReferenceQwen3, write_checkpoint

SELECTOR = """
from dise_core import Selector, hookimpl

class Mine(Selector):
    def select(self, sequence):
        return sequence.mask_of(sequence.response_positions[::2])

@hookimpl
def dise_selectors():
    return {"mine": Mine}
"""

READING = r'''
import numpy as np
import re2
from pydantic import Field

from dise_core import Floats, Mask, Selector, TokenSequence, hookimpl


class Late(Selector):
    """Selects the last place where a pattern matches the response; later tokens count more."""

    pattern: str = Field(default=r"\d+", max_length=100)

    def select(self, sequence: TokenSequence) -> Mask:
        text, last = sequence.response_bytes, None
        for last in re2.finditer(self.pattern.encode(), text):
            pass
        return sequence.mask_of([] if last is None else sequence.covering(*last.span()))

    def weights(self, sequence: TokenSequence) -> Floats:
        return self.select(sequence) * np.arange(1.0, len(sequence) + 1)


@hookimpl
def dise_selectors() -> dict[str, type[Selector]]:
    return {"late": Late}
'''

ENGINE = """
from typing import Literal

import torch
import transformers
from dise_adapters.families.a2d import qwen3_settings
from dise_adapters.families.family import Family
from dise_adapters.predictor import predictor_of
from dise_core import Backend, hookimpl
from dise_core.params.base import Params
from dise_core.testing import naive_readout

FAMILY = Family(
    about="A Qwen3 that somebody taught to denoise.",
    architectures=("DenoisingQwen3",),
    model_class="Qwen3ForCausalLM",
    translate=qwen3_settings,
)

class Reader:
    room = None

    def __init__(self, model):
        self.model = model

    @torch.inference_mode()
    def read(self, reads):
        texts = [torch.from_numpy(read.token_ids)[None] for read in reads]
        logits = [self.model(text).logits[0].numpy() for text in texts]
        return [naive_readout(rows[read.positions], read) for rows, read in zip(logits, reads)]

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

@hookimpl
def dise_mask_predictors():
    return {"denoising-qwen3": predictor_of(FAMILY)}
"""

GUEST = """
from fastapi import APIRouter
from pydantic import BaseModel

from dise_app.server.service import Service
from dise_core import MaskPredictor, hookimpl
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


@hookimpl
def dise_commands():
    return {"count": "guest:count", "lost": "guest:lost", "odd": 3}


@hookimpl
def dise_datasets():
    return {"lengths": LENGTHS, "lost": "guest:lost"}


@hookimpl
def dise_routes():
    return {"count": "guest:add_count", "lost": "guest:lost", "taken": "guest:add_taken"}


@hookimpl
def dise_route_options():
    return {"count": Counting}
"""

WHOLE = """
from dise_app import *
from dise_core import Backend, hookimpl
from dise_core.params.base import Params


class Counting(Params):
    weight: int = 1
    'What a token counts.'


class Threads(Params):
    whole_threads: int = 2
    'Threads of its engine.'


class Whole(Backend):
    'An engine with an option.'

    options = Threads

    @classmethod
    def open(cls, checkpoint, config):
        raise NotImplementedError


class Queue(FileRunner):
    queue: str | None = None
    'Where the requests go.'

    def takes(self, files):
        return self.queue is not None

    def run(self, work):
        print(self.queue, work.command)


@verb("model", models=SCORED["models"], engine=SCORED["engine"], files=SCORED["files"])
def told(*, parts: Parts) -> None:
    'Tell what it was given.'
    print(parts.engine, parts.files["queue"])


@hookimpl
def dise_commands():
    return {"told": told}


@hookimpl
def dise_route_options():
    return {"whole": Counting}


@hookimpl
def dise_engines():
    return {"whole": Whole}


@hookimpl
def dise_file_runners():
    return {"whole": Queue}
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
import torch, transformers.modeling_utils  # as commands and plugins do; each runs in a copy of this

def told(args):
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if args[0] == "pytest":
                code = tests_in(args[1])
            else:
                from dise_app.cli.main import run

                sys.argv = ["dise", *args]
                run()
        except SystemExit as leaving:
            code = leaving.code or 0
    return [code, out.getvalue(), err.getvalue()]

def tests_in(folder):
    import pytest

    os.chdir(folder)
    sys.path.insert(0, folder)
    return pytest.main(["-q", "-p", "no:cacheprovider", folder])

for line in sys.stdin:
    if os.fork() == 0:
        importlib.invalidate_caches()  # what was installed since
        print(json.dumps([told(args) for args in json.loads(line)]), flush=True)
        os._exit(0)
    if os.wait()[1]:
        print("[]", flush=True)  # it told nothing
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
        self.folder, self.python = folder, folder / "venv" / "bin" / "python"
        self.run(sys.executable, "-m", "venv", folder / "venv")
        where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        self._site = Path(self.run(self.python, "-c", where).stdout.strip())
        parent = sysconfig.get_path("purelib")
        (self._site / "parent.pth").write_text(f"import site; site.addsitedir({parent!r})\n")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._running: Any = subprocess.Popen(
            [self.python, "-c", EACH], stderr=subprocess.DEVNULL, **pipes
        )

    def run(self, *command: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run any command, which succeeds."""
        command = tuple(map(str, command))
        done = subprocess.run(command, check=False, capture_output=True, text=True, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def build(self, *sources: Path) -> None:
        """Install folders by pip."""
        options = ("--no-deps", "--no-build-isolation", "--no-index")
        self.run(self.python, "-m", "pip", "install", *options, *sources)

    def tests_of(self, folder: Path) -> str:
        """Return what a package's own tests print; they pass."""
        [done] = self.each(("pytest", folder))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def installed(self, name: str, code: str) -> Iterator[None]:
        """Install a module, a plugin, as pip leaves it; remove it afterwards."""
        module, info = self._site / f"{name}.py", self._site / f"{name}-1.0.dist-info"
        info.mkdir()
        module.write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[dise]\n{name} = {name}\n")
        try:
            yield
        finally:
            module.unlink()
            shutil.rmtree(info)

    def each(self, *commands: Sequence[str | Path]) -> list[Done]:
        """Run commands one after the other, in a new process."""
        self._running.stdin.write(json.dumps([[*map(str, each)] for each in commands]) + "\n")
        self._running.stdin.flush()
        return [Done(*told) for told in json.loads(self._running.stdout.readline())]

    def close(self) -> None:
        """End the process whose copies run the commands."""
        self._running.communicate(timeout=60)


def written(folder: Path, page: str) -> Path:
    """Return the folder of a package, as a page tells its readers to write it."""
    folder.mkdir()
    for name, text in titled((ROOT / page).read_text()).items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    folder = tmp_path_factory.mktemp("environment")
    environment = Environment(folder)
    packages = [path.parent.name for path in (ROOT / "examples").glob("*/pyproject.toml")]
    for name in packages:
        shutil.copytree(ROOT / "examples" / name, folder / name)
    environment.build(*(folder / name for name in packages))
    yield environment
    environment.close()


SCORE = ("score", "--json", "--no-chat", "--response")


def test_the_example_plugin_works_by_name_and_its_own_tests_pass(environment: Environment) -> None:
    assert "4 passed" in environment.tests_of(environment.folder / "plugin")
    names = ("--scorer", "mean-entropy", "--selector", "every-3")
    scored, plugins = environment.each(
        (*SCORE, "1+2=3,3+4=7", *names), ("plugins", "--json", "--kind", "selector")
    )
    score = scored.output["score"]
    assert (score["scorer"], score["selector"]) == ("mean-entropy", "every-3")
    assert (score["value"] < 0, score["num_positions"]) == (True, 4)
    [row] = [r for r in json.loads(plugins.stdout)["plugins"] if r["name"] == "every-K"]
    assert row["plugin"] == "dise-entropy"
    assert row["about"].startswith("Selects every K-th token of the response")
    script = (
        "from dise_core import LLM, ScoringParams\n"
        "params = ScoringParams(scorer='mean-entropy', selector='every-3')\n"
        "[answer] = LLM('countdown').score('', '1+2=3,3+4=7', params, chat=False)\n"
        "print(answer.outputs[0].score.value)"
    )
    in_python = environment.run(environment.python, "-c", script)
    assert float(in_python.stdout) == pytest.approx(score["value"])


@pytest.mark.timeout(600)
def test_selectors_that_read_and_weigh_work_at_every_door(
    environment: Environment, tmp_path: Path
) -> None:
    """From the command, Python and HTTP, equal to means by hand; the page: test_page.py."""
    text = "18+75=93,93-83=10"
    more = ("--logprobs", "0", "--explain")
    script = (
        "import json\n"
        "from fastapi.testclient import TestClient\n"
        "from dise_app.server.app import create_app\n"
        "from dise_app.server.limits import Limits\n"
        "from dise_app.server.service import Service\n"
        "from dise_core import AsyncLLM, LLM, ScoringParams\n"
        "settings = {'late': {'pattern': '93.*='}}\n"
        "params = ScoringParams(selector='late+last-2', selector_settings=settings)\n"
        f"[answer] = LLM('countdown').score('', {text!r}, params, chat=False)\n"
        "with TestClient(create_app(Service(Limits(), AsyncLLM('countdown')))) as client:\n"
        f"    body = {{'response': {text!r}, 'chat': False, 'selector': 'late+last-2'}}\n"
        "    body['selector_settings'] = settings\n"
        "    told = client.post('/v1/score', json=body).json()['data'][0]['score']['value']\n"
        "print(json.dumps([answer.outputs[0].score.value, told]))"
    )
    with environment.installed("reading", READING):
        late, union = environment.each(
            (*SCORE, text, "--selector", "late", "--selector-setting", "pattern=93.*=", *more),
            (*SCORE, text, "--selector", "late+last-2", "--selector-setting",
             "late.pattern=93.*=", *more),
        )  # fmt: skip
        doors = json.loads(environment.run(environment.python, "-c", script).stdout)
    logprobs = [token["logprob"] for token in late.output["tokens"]][: len(text)]
    span = range(text.index("93"), text.rindex("=") + 1)
    weights = [float(at + 1) if at in span else 0.0 for at in range(len(text))]
    by_hand = sum(w * x for w, x in zip(weights, logprobs, strict=True)) / sum(weights)
    assert late.value == pytest.approx(by_hand, abs=1e-6)
    weights[-2:] = [1.0, 1.0]
    by_hand = sum(w * x for w, x in zip(weights, logprobs, strict=True)) / sum(weights)
    assert union.value == pytest.approx(by_hand, abs=1e-6)
    assert doors == pytest.approx([by_hand] * 2, abs=1e-5)
    told = union.output["explanation"]["tokens"]
    shares = {token["position"]: token["weight"] for token in told if token["counts"]}
    assert shares == {at: weight for at, weight in enumerate(weights) if weight}
    assert "weighted mean of the log-probabilities of" in union.output["explanation"]["formula"]


@pytest.mark.timeout(900)
def test_the_example_likelihoods_install_and_their_own_tests_pass(environment: Environment) -> None:
    assert "passed" in environment.tests_of(environment.folder / "likelihoods")
    [scored] = environment.each((*SCORE, "1+2=3,3+4=7", "--scorer", "greedy-path"))
    assert scored.output["score"]["scorer"] == "greedy-path"
    assert scored.value < 0


@pytest.mark.timeout(900)
def test_the_example_trainers_installs_and_its_own_tests_pass(environment: Environment) -> None:
    assert "29 passed" in environment.tests_of(environment.folder / "trainers")


@pytest.mark.timeout(600)
def test_the_example_of_noise_models_installs_and_its_own_tests_pass(
    environment: Environment,
) -> None:
    assert "22 passed" in environment.tests_of(environment.folder / "noise_models")
    folder = environment.folder / "tiny"
    environment.run(environment.python, "-m", "dise_noise_models", folder)
    for name in ("mdlm", "mdlm-time", "sedd", "sedd-uniform", "bd3lm"):
        model = ("--model", folder / name)
        scored, written = environment.each(
            (*SCORE, "defg", *model), ("generate", "--json", "--max-tokens", "4", "abc", *model)
        )
        assert scored.value <= 0
        assert len(written.output["token_ids"]) <= 4


@pytest.mark.timeout(900)
def test_a_stranger_builds_the_plugins_page_from_an_empty_folder(
    environment: Environment, tmp_path: Path
) -> None:
    """A scorer, a selector, a length controller and a policy, each through its kit and by name."""
    environment.build(source := written(tmp_path / "page", "docs/plugins.md"))
    assert "4 passed" in environment.tests_of(source)
    names = ("--length", "halving", "--unmasking", "apart")
    write = ("83,18,75 -> 10", "--max-tokens", "32", "--scorer", "mean-entropy", "--json")
    [done] = environment.each(("generate", *write, *names, "--unmasking-setting", "gap=3"))
    assert done.output["score"]["scorer"] == "mean-entropy"


def test_a_taken_name_is_its_plugins_own_and_plugins_may_be_left_out(
    environment: Environment,
) -> None:
    score = (*SCORE, "1+2=3", "--selector")
    with environment.installed("duplicate", SELECTOR.replace("mine", "full")):
        ours, theirs, listed, shown = environment.each(
            (*score, "full"), (*score, "duplicate:full"), ("plugins", "--json"), ("plugins",)
        )
        command = (environment.python, "-m", "dise", *score, "full")
        alone = environment.run(*command, env={**os.environ, "DISE_PLUGINS": "dise-entropy"})
    assert ours.output["score"]["num_positions"] == 5
    score_of_theirs = theirs.output["score"]
    assert (score_of_theirs["selector"], score_of_theirs["num_positions"]) == ("duplicate:full", 3)
    taken = "plugin 'duplicate' registers selector 'full', which another plugin has: write "
    assert taken + "'duplicate:full' for its own" in ours.stderr
    assert alone.stderr == ""
    record = json.loads(listed.stdout)
    [row] = [row for row in record["plugins"] if row["name"] == "duplicate:full"]
    assert (row["plugin"], row["distribution"], row["version"]) == ("duplicate", "duplicate", "1.0")
    assert record["interface_version"] == 1
    assert "Selectors, for --selector, from duplicate (duplicate 1.0)" in shown.stdout
    assert "Interface 1." in shown.stdout


HOOK = ("plugin 'misspelt'", "dise_selektors", "Hooks: dise_commands, dise_constraints")
LOST = ("plugin 'broken' (distribution 'broken') cannot be imported", "a_package_that_nobody_has")


@pytest.mark.parametrize(
    ("name", "code", "wanted", "texts"),
    [
        ("misspelt", SELECTOR.replace("_selectors", "_selektors"), "mine", HOOK),
        ("broken", "import a_package_that_nobody_has", "mine", LOST),
    ],
)
def test_a_broken_plugin_is_one_line_that_names_it_and_stops_only_its_own_names(
    environment: Environment, name: str, code: str, wanted: str, texts: Sequence[str]
) -> None:
    with environment.installed(name, code):
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
            assert text in problem["problem"]
        assert unknown.stderr.endswith(f"which `dise plugins` tells: '{name}'\n")
        assert (listed.returncode, problem["plugin"]) == (1, name)
        assert "prompt-last-K" in {row["name"] for row in record["plugins"]}
        assert listed.stderr.strip() == f"dise: {problem['problem']}"
        assert (shown.returncode, shown.stderr) == (1, listed.stderr)
        assert "countdown" in shown.stdout


def test_a_third_partys_engine_and_ours_run_a_third_partys_family(
    environment: Environment, tmp_path: Path
) -> None:
    names = {"architectures": ["DenoisingQwen3"], "model_type": "denoising-qwen3"}
    folder = write_checkpoint(tmp_path, **names, is_causal=False, mask_token_id=MASK)
    model = ("--model", folder)
    ids = list(range(1, 21))
    expected = float(ReferenceQwen3(tmp_path).logprobs(ids)[range(20), ids].mean())
    plain = (*model, "--engine", "plain")
    full = (*SCORE, "bcdefghijklmnopqrstu", "--unfinished", "--selector", "full")
    write = ("generate", "bcd", "--max-tokens", "4", "--no-chat", *plain)
    with environment.installed("guest_engine", ENGINE):
        ours, theirs, rounded, generated = environment.each(
            (*full, *model),
            (*full, *plain),
            (*full, *plain, "--significand", "24"),
            (*write, "--json"),
        )
    assert ours.value == pytest.approx(expected, abs=1e-5)
    assert theirs.value == pytest.approx(expected, abs=1e-5)
    assert rounded.value == pytest.approx(theirs.value, abs=1e-4)
    assert rounded.value != theirs.value
    assert generated.returncode == 0, generated.stderr


def test_a_guest_adds_a_verb_a_route_and_a_data_set_and_what_is_broken_breaks_nothing_else(
    environment: Environment, tmp_path: Path
) -> None:
    data, output = tmp_path / "lengths.jsonl", tmp_path / "run"
    rows = [{"text": "83,18,75 -> 10", "odd": odd, "response": "18+75-83"} for odd in (0, 1)]
    data.write_text("\n".join(map(json.dumps, rows)))
    evaluate = ("eval", "given", "--dataset", "lengths", "--data", data, "--score", "dise")
    with environment.installed("guest", GUEST):
        helped, serve, bad, counted, lost, odd, unknown, scored, graded, *listed = environment.each(
            ("--help",),
            ("serve", "--help"),
            ("serve", "--joint", "--weight", "x"),
            ("count", "abc", "--twice"),
            ("lost", "--whatever", "3"),
            ("odd",),
            ("losst",),
            ("score", "--response", "1+2=3"),
            (*evaluate, "--output", output),
            ("models", "--json"),
            ("plugins", "--json"),
        )
        served = environment.run(environment.python, "-c", SERVED)
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
    models, plugins = listed
    problems = json.loads(plugins.stdout)["problems"]
    broken = [entry for entry in problems if "'guest:lost' cannot be imported" in entry["problem"]]
    assert (plugins.returncode, [entry["plugin"] for entry in broken]) == (1, ["guest"] * 3)
    by_name = {row["name"]: row["by_name"] for row in json.loads(models.stdout)["models"]}
    assert (models.returncode, by_name["countdown"], by_name["failing"]) == (1, True, False)
    failure = "fails in claims(): OSError: no route to the hub"
    assert f"Adapter 'failing' of plugin 'guest' {failure}" in models.stderr
    assert json.loads(served.stdout) == [{"count": 15}, 415, "list"]
    assert "plugin 'guest': 'guest:lost' cannot be imported" in served.stderr
    assert "plugin 'guest': POST /v1/score is a route already" in served.stderr


def test_what_a_module_adds_is_there_whatever_of_ours_it_imports_and_decorates(
    environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text("{}\n")
    files = ("--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl", "--queue", "q")
    with environment.installed("whole", WHOLE):
        serve, told, queued, listed = environment.each(
            ("serve", "--help"),
            ("told", "--whole-threads", "3", "--queue", "q"),
            ("score", *files),
            ("plugins",),
        )
    assert re.search(r"--weight +INTEGER +What a token counts\.", serve.stdout)
    assert re.search(r"--whole-threads +INTEGER +Threads of its engine\.", serve.stdout)
    assert (told.stdout, told.stderr) == ("{'whole_threads': 3} q\n", "")
    assert (queued.stdout, queued.stderr) == ("q score\n", "")
    assert (listed.returncode, listed.stderr) == (0, "")


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
    assert tops == engine | {"dise_sglang", "dise_eval", "dise_decide", "dise_cluster"}
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
