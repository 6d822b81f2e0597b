"""The command: a line in its words and exit code 2, whatever is wrong with what was typed."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

import pytest
import torch

from tests.reference_llada import default_config, random_weights, write_checkpoint
from tests.refusals.table import Refusal, Row, Table

UNREADABLE = "weights that are not finite numbers"
"""What is said of the model below as soon as its weights are read."""

CONFIG = default_config(max_sequence_length=32)

TOO_LONG = "is longer than the model's limit of 32 tokens"
LONG = "a" * 30
FAST = "--max-tokens 8 --steps 2"

LINES: list[Row] = [
    ("generate ''", "prompt", "the prompt is empty"),
    ("generate 1 --max-tokens 0", "max_tokens",
     "max_tokens=0: Input should be greater than or equal"),
    ("generate 1 --steps 4 --tokens-per-step 2", "--steps, --tokens-per-step",
     "give either --steps or --tokens-per-step"),
    ("generate 1 --scorer dize", "scorer",
     "unknown scorer 'dize'. Did you mean 'dise'? Known: ar-perp"),
    ("generate 1 --model countdwn", "model", "unknown model 'countdwn'. Did you mean 'countdown'?"),
    ("generate 1 --model ./nowhere", "folder", "there is no folder './nowhere'"),
    ("generate 1 --model llada", "model",
     "'llada' is an adapter and no model: name a model that it"),
    ("generate 1 --model EMPTY", "model=is empty: name the folder of a checkpoint",
     "is empty: name the folder of a checkpoint, with its config"),
    ("generate 1 --lora EMPTY", "adapter",
     "holds no adapter_config.json: name the folder of a LoRA ada"),
    ("generate 1 --choice a,", "--choice",
     "--choice is written A,B,... with a text between the commas,"),
    ("generate 1 --regex '('", "--regex",
     "cannot be used as it is written; expressions, as of --regex,"),
    ("generate 1 --selector last10", "selector",
     "unknown selector 'last10'. Did you mean 'last-10'? Kn"),
    ("generate 1 --calibration '{}'", "--calibration",
     "no calibration file '{}': --calibration (in Python calib"),
    ("rank 1+2", "rank",
     "this is one: every argument is a candidate, and the prompt is given by --p"),
    ("generate --input x --output y --shard 3of4", "--shard",
     "--shard is i/n with i from 1 to n, such"),
    ("decide 1 --choice 12=", "--choice",
     "--choice is written QUESTION=A,B,... with two or more answe"),
    ("generate 1 --device abacus", "device", "device 'abacus' cannot be used"),
    ("generate --input /no/such/file", "--input=cannot read /no/such/file",
     "cannot read /no/such/file: No such file"),
    ("generate --input - --resume", "--resume, --output", "--resume needs --output FILE"),
    ("generate --input - --overwrite", "--overwrite, --output", "--overwrite needs --output FILE"),
    ("generate --input - --output x --resume --overwrite", "--resume, --overwrite",
     "give either --resume or --overw"),
    ("score --response 1 --scorer-setting k", "setting", "a setting is written KEY=VALUE, not 'k'"),
    ("score --response 1 --scorer-setting k=2", "scorer",
     "scorer 'dise': there is no setting 'k'. Known: none"),
    ("generate 1 --reviser remask --reviser-setting treshold=1", "treshold",
     "no setting 'treshold'. Did you mean 'threshold'? Known: accept, max_tokens,"),
    ("score --response 1 --scorer-setting k=2 --scorer-setting k=3", "k=setting 'k'",
     "setting 'k' is given twice"),
    ("score --response 1 --model-args block_size", "setting",
     "a setting is written KEY=VALUE, not 'bl"),
    ("score --response 1 --model-args device_map=auto,block_sise=4", "--model-args",
     "--model-args has no key 'block_sise'. Did you mean 'block_size'? Its keys: adapter, "),
    ("score --response 1 --model-args block_size=x", "block_size",
     "block_size='x': Input should be a vali"),
    ("score --response 1 --model-args adapter=lama", "adapter",
     "unknown adapter 'lama'. Did you mean 'llama'? Known: a2d-qwen2, a2d-qwen3, countdown"),
    ("eval uncertainty --dataset countdown --output OUT --model-args adapter=lama", "adapter",
     "unknown adapter 'lama'. Did you mean 'llama'? Known: a2d-qwen2, a2d-qwen3, countdown"),
    ("serve --port 0 --model-args adapter=lama", "adapter",
     "unknown adapter 'lama'. Did you mean 'llama'? Known: a2d-qwen2, a2d-qwen3, countdown"),
    ("score --response 1 --judge countdown", "judge", "judge 'countdown' is not auto-regressive"),
    ("score --response 1 --judge no/such.gguf", "judge=no/such.gguf",
     "there is no file 'no/such.gguf'"),
    ("serve --model-args vllm_options.max_model_len=64", "vllm_options",
     "tensor_parallel_size and vllm_options need"),
    ("fill 1+2", "gap", "the text has no gap: mark one by {}"),
    ("fill 1+{}", "gap", "a gap needs a text behind it"),
    ("fill 1{}{}2", "gap", "a gap needs a text behind it"),
    ("fill 1{}2 --model countdown-blocks", "gap", "'countdown-blocks' is block-causal"),
    ("generate 1 --length dise-flexible --length-setting patience=0", "patience",
     "patience=0: Input should"),
    ("generate 1 --schema BAD", "--schema=bad.json", "bad.json holds no JSON"),
    ("generate 1 --schema EMPTY/none.json", "--schema=none.json", "none.json: No such file"),
    ("generate 1 --regex 1 --choice 2", "--schema, --regex, --choice",
     "give one of --schema, --regex, --choice"),
    ("generate 1 --regex 1 --constraint regex", "--regex, --constraint",
     "give one of --schema, --regex, --choice"),
    ("decide --yes-no Q", "TEXT, --input",
     "give either TEXT, or - for standard input, or --input FILE"),
    ("decide --yes-no Q --input 1", "--input",
     "cannot read '1': no such file; a text needs no --in"),
    ("decide 1", "--yes-no, --choice, --scale", "give at least one question"),
    ("decide 1 --choice A,B", "--choice", "--choice is written QUESTION=A,B"),
    ("decide 1 --scale 2=3 --layout cloze", "--scale",
     "--scale is written QUESTION=A,B,... with two or more"),
    ("decide 1 --choice 2=3, --layout cloze", "--choice",
     "--choice is written QUESTION=A,B,... with two or more"),
    ("decide 1 --choice 2=3,3 --layout cloze", "label", "the labels '3' and '3'"),
    ("decide 1 --choice 2=3,x --layout cloze", "choice='x'", "the model's vocabulary has no 'x'"),
    ("decide '' --choice 2=3,4 --layout cloze", "input", "the input is empty"),
    ("score --input NOTHING", "--input", "holds no line"),
    ("generate --input FILE --output FILE/out.jsonl", "--output", "cannot write --output"),
    ("generate --input FILE --output EMPTY", "--seed", "shards need --seed"),
    ("plugins --kind nonsense", "kind", "unknown kind 'nonsense'. Known: command,"),
    ("serve --port 0 --model EMPTY/none --cache-salt-by-key",
     "--cache-salt-by-key, --api-key-file", "--cache-salt-by-key needs API keys: set DISE_API_KEY"),
]  # fmt: skip

UNLOADED: list[Row] = [
    (f"generate {LONG} {FAST}", "prompt, max_tokens", TOO_LONG),
    (f"generate a {FAST} --scorer ar-perplexity", "judge", "needs an auto-regressive judge"),
    (f"generate a {FAST} --unmasking nothing", "unmasking", "unknown unmasking policy"),
    (f"generate a {FAST} --length cal --regex a", "length", "cannot be combined"),
    (f"generate a {FAST} --regex '('", "--regex", "the expression '(' cannot be used"),
    (f"generate a {FAST} --regex a{{9}}", "constraint",
     "no answer of 8 tokens meets the constraint"),
    (f"generate a {FAST} --regex a --scorer nothing", "scorer", "unknown scorer"),
    (f"fill {LONG}{{}}a {FAST}", "suffix, max_tokens", TOO_LONG),
    (f"score --prompt a --response {LONG + LONG}", "text", TOO_LONG),
    ("score --response ''", "response", "the response is empty"),
    ("decide a --yes-no b", "input=Question: b", "the model's vocabulary has no"),
]  # fmt: skip

USAGE: list[Row] = [
    ("generate 1 --n x", "--n", "Invalid value for '--n': it must be a valid integer"),
    ("generate 1 --temperature x", "--temperature",
     "Invalid value for '--temperature': it must be a valid number"),
    ("generate 1 --dtype x", "--dtype",
     "Invalid value for '--dtype': 'x' is not one of 'auto', 'float32', 'bfloat16', 'float16'."),
    ("generate 1 --early-exit x", "--early-exit",
     "--early-exit was taken out: take length='until-end', which stops after the block that "
     "ends the answer."),
    ("generate 1 --device-map x", "--device-map",
     "--device-map was taken out: write --model-args device_map=VALUE."),
    ("generate 1 --samples x", "--samples",
     "--samples was taken out: write --scorer-setting num_samples=SAMPLES."),
    ("generate 1 --logit-bias x", "--logit-bias",
     "--logit-bias was taken out: Python and HTTP have it."),
    ("generate 1 --eps x", "--eps",
     "--eps was taken out: it is a setting of the unmasking policy: unmasking_settings={'eps': "
     "VALUE}, or --unmasking-setting eps=VALUE."),
    ("generate 1 --logits-setting x", "--logits-setting",
     "--logits-setting was taken out: take logit_bias or a constraint, which say what is written."),
    ("serve --header-timeout 3", "--header-timeout",
     "--header-timeout was taken out: put a proxy in front of the server"),
    ("decide 1 --yes-no Q --orders cyclic", "--orders", "--orders was taken out: "),
    ("decide 1 --yes-no Q --reading each-negated", "reading",
     "reading 'each-negated' was taken out: use \"each\", which"),
    ("generat --model countdown", "command='generat'",
     "No such command 'generat'. Did you mean 'generate'?"),
    ("sevre --model countdown", "command='sevre'",
     "No such command 'sevre'. Did you mean 'serve'?"),
    ("eval likelihod --model countdown", "command='likelihod'",
     "No such command 'likelihod'. Did you mean 'likelihood'?"),
    ("zzzz --model countdown", "command='zzzz'", "No such command 'zzzz'."),
    ("analyze --help", "verb", "verb 'analyze' was taken out: … as dise eval coherence"),
    ("recipes --help", "verb", "verb 'recipes' was taken out: … --recipe list shows"),
]  # fmt: skip

BARE: list[Row] = [
    (verb, "--input", f"give either {asked} or --input FILE; `dise {verb} --help` shows how")
    for verb, asked in (
        ("generate", "prompts"),
        ("score", "--response TEXT (with --prompt)"),
        ("rank", "candidates (with --prompt)"),
        ("fill", "TEXT"),
        ("decide", "TEXT, or - for standard input,"),
    )
]


def unreadable(folder: Path) -> Path:
    """Write a checkpoint whose weights are refused once they are read."""
    weights = random_weights(CONFIG)
    weights["model.transformer.wte.weight"] = torch.full((52, 64), float("nan"))
    return write_checkpoint(folder, CONFIG, weights)


def files(folder: Path) -> dict[str, str]:
    """Return the files that lines name."""
    names = {name: folder / name.lower() for name in ("EMPTY", "BAD.json", "NOTHING", "FILE")}
    names["EMPTY"].mkdir()
    for name, text in (("BAD.json", "{"), ("NOTHING", "\n"), ("FILE", "{}\n")):
        names[name].write_text(text)
    named = {name.removesuffix(".json"): str(path) for name, path in names.items()}
    return named | {"OUT": str(folder / "out")}


def typed(line: str, request: pytest.FixtureRequest, *more: object) -> str:
    """Type a line, and return what standard error says."""
    request.getfixturevalue("monkeypatch").delenv("DISE_API_KEY", raising=False)
    for name, path in files(request.getfixturevalue("tmp_path")).items():
        line = line.replace(name, path)
    run = request.getfixturevalue("dise")(*shlex.split(line), *more)
    assert run.code == 2
    assert run.out == "" or line.startswith("serve"), "which says first where it listens"
    assert not logging.getLogger("dise.server").handlers  # they would outlive the test's stderr
    return str(run.err)


def refused(line: str, request: pytest.FixtureRequest) -> Refusal:
    told = typed(line, request)
    assert told.startswith("dise: ")
    return Refusal(told.removeprefix("dise: ").removesuffix("\n"), None)


def unloaded(line: str, request: pytest.FixtureRequest) -> Refusal:
    folder = unreadable(request.getfixturevalue("tmp_path") / "model")
    told = typed(line, request, "--model", folder)
    assert UNREADABLE not in told
    *_, last = told.splitlines()  # behind a word on the scorer
    return Refusal(last.removeprefix("dise: "), None)


def misused(line: str, request: pytest.FixtureRequest) -> Refusal:
    """Return the last line; those before it are the verb's usage."""
    _, _, told = typed(line, request).rpartition("Error: ")
    return Refusal(told.removesuffix("\n"), None)


TABLES = [
    Table("command", refused, LINES),
    Table("command unloaded", unloaded, UNLOADED),
    Table("usage", misused, USAGE),
    Table("bare verb", refused, BARE),
]
