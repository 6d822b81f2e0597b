"""Python's door: settings, options and names."""

from __future__ import annotations

from dise_core import EngineConfig, SamplingParams
from dise_core.plugins.discovery import installed_catalog
from dise_core.plugins.kinds import CONSTRAINT
from tests.refusals.table import Row, Table, raised

SETTINGS: list[Row] = [
    ({"max_tokens": 0}, "max_tokens", "max_tokens=0: Input should be greater than or equal to 1"),
    ({"temperature": float("nan")}, "temperature", "temperature=nan"),
    ({"colour": "red"}, "colour", "there is no setting 'colour'"),
    ({"selektor": "full"}, "selektor", "no setting 'selektor'. Did you mean 'selector'?"),
    ({"max_token": 3}, "max_token", "there is no setting 'max_token'. Did you mean 'max_tokens'?"),
    ({"remaskin": "random"}, "remaskin", "Did you mean 'remasking'?"),
    ({"max_tokens" * 10**5: 3}, "max_tokens" * 8, "there is no setting 'max_tokens"),
    ({"early_exit": 0.9}, "early_exit", "'early_exit' was taken out: take length='until-end'"),
    ({"logits": "x"}, "logits", "'logits' was taken out: take logit_bias or a constraint"),
    ({"logit_bias": {"x": 1}}, "logit_bias.x", "logit_bias.x='x': Input should be a valid integer"),
    ({"logit_bias": "7"}, "logit_bias",
     """valid dictionary, written as JSON, such as {"name": 1}"""),
    ({"logit_bias": {2**31: 1}}, "logit_bias.2147483648", "should be less than 2147483648"),
    ({"logit_bias": {7: 100.5}}, "logit_bias.7",
     "logit_bias.7=100.5: Input should be less than or equal to"),
    ({"n": 3, "best_of": 2}, "best_of, n", "best_of=2 is less than n=3"),
    ({"max_tokens": 128, "steps": 3}, "steps, blocks",
     "steps=3 is less than one step for each of the 4 blocks"),
    ({"constraint_settings": {"regex": "a"}}, "constraint_settings, constraint",
     "constraint_settings need a constraint: name one"),
    ({"stop_at": 0.9, "temperature": 1.0}, "stop_at, best_of", "needs a best_of above n"),
    ({"stop_at": 0.9, "temperature": 1.0, "n": 4}, "stop_at, best_of", "needs a best_of above n"),
    ({"stop_at": 0.9, "temperature": 1.0, "n": 4, "best_of": 4}, "stop_at, best_of", "above n=4"),
    ({"n": 10**18}, "n", "n=1000000000000000000: Input should be less than or equal to 1024"),
    ({"steps": 10**9}, "steps", "steps=1000000000"),
    ({"stop": ["x" * 1_900_000]}, "stop.0", "at most 1000 characters"),
    ({"selector": "full+" * 300_000}, "selector", "at most 1000 characters"),
]  # fmt: skip

DEVICES: list[Row] = [
    ({"max_memory": {"cpu": "1GiB"}}, "max_memory, device_map", "max_memory needs a device_map"),
    ({"device_map": "auto", "device": "cpu"}, "device_map, device",
     "device_map chooses the devices"),
    ({"device_map": "auto", "quantization": "int8"}, "quantization, device_map",
     "leave out device_map"),
    ({"device_map": "auto", "max_memory": {"gpu0": "1GiB"}}, "max_memory",
     "a device is cpu or a GPU's"),
    ({"device_map": "auto", "max_memory": {"0": "much"}}, "max_memory", "'much' is no size"),
    ({"device_map": "auto", "max_memory": {"0": -3}}, "max_memory", "-3 is no size"),
]  # fmt: skip

SELECTORS: list[Row] = [
    (("last_10",), "selector", "unknown selector 'last_10'. Did you mean 'last-10'"),
    (("last10",), "selector", "unknown selector 'last10'. Did you mean 'last-10'"),
    (("promptlast-7",), "selector", "Did you mean 'prompt-last-7'"),
    (("frist-0007",), "selector", "Did you mean 'first-0007'"),
    (("last-x",), "selector", "Did you mean 'last-10'"),
    (("lost-10",), "selector", "unknown selector 'lost-10'"),
    (("",), "selector", "unknown selector ''"),
    (("full+",), "selector", "unknown selector ''"),
    (("last-K",), "selector", "selector 'last-K' needs a number, for example last-10"),
    (("last-0",), "k", "selector 'last-K': k=0: Input should be greater than 0"),
    (("last-1.5",), "selector", "unknown selector 'last-1.5'"),
    (("last-7", {"k": 3}), "selector_settings",
     "'last-7' has its k in its name: leave out the setting k, or nam"),
    (("last-K", {"k": 0}), "k", "selector 'last-K': k=0: Input should be greater than 0"),
    (("full", {"k": 3}), "k", "selector 'full': there is no setting 'k'. Known: none"),
    (("answer+full", {"pattern": "a"}), "selector_settings",
     "and not 'a' for 'pattern'. Its parts: answer, full"),
    (("answer+full", {"answr": {}}), "selector_settings",
     "Did you mean 'answer'? Its parts: answer, full"),
    (("answer+full", {"answer": {"patern": "a"}}), "patern",
     "Did you mean 'pattern'? Known: pattern"),
    (("answer", {"pattern": "(a"}), "pattern",
     "selector 'answer': pattern='(a': RE2 cannot use the … : 'missing ): "),
    (("answer", {"pattern": "a" * 257}), "pattern", "at most 256 characters"),
    (("answer", {"pattern": ""}), "pattern", "at least 1 character"),
    (("answer", {"pattern": "(" * 120 + ")" * 100}), "pattern", "missing"),
    (("answer", {"pattern": "((a{99}){99}){99}"}), "pattern",
     "counts above 1,000: write it without"),
    (("answer", {"pattern": "(?<=is )a"}), "pattern", "RE2 cannot use … It has no look-around"),
    (("answer", {"pattern": r"(a)\1"}), "pattern",
     "'invalid escape sequence … no look-around, back-references"),
    (("answer", {"pattern": r"\Q"}), "pattern", "'missing"),
    (("answer", {"pattern": "\udcff"}), "pattern", "should be a valid string"),
    (("answer", {"pattern": "(a)" * 10}), "pattern",
     "it has more than 9 groups: write (?:...) for others"),
    (("answer", {"patern": "a"}), "patern", "no setting 'patern'. Did you mean 'pattern'?"),
]  # fmt: skip

NAMES: list[Row] = [
    (("scorer", "dize"), "scorer",
     "unknown scorer 'dize'. Did you mean 'dise'? Known: ar-perplexity, di"),
    (("unmasking_policy", "lowest"), "unmasking", "unknown unmasking policy 'lowest'"),
    (("length_controller", "fix"), "length", "unknown length controller 'fix'"),
    (("length_controller", "smart-crop"), "length",
     "length controller 'smart-crop' was taken out: take 'rho-eos', which solves as many "
     "problems in fewer passes."),
    (("scorer", "mc-dream"), "scorer",
     "scorer 'mc-dream' was taken out: take 'mc' with the setting estimator=dream."),
    (("selector", "response-first-2"), "selector",
     "selector 'response-first-2' was taken out: take 'first-K', which passes over end tokens, "
     "or 'first-blocks-K'."),
    (("selector", "last-2+prompt"), "selector",
     "selector 'prompt' was taken out: take 'prompt-last-K' with a large K, which is the same."),
    (("unmasking_policy", "factor"), "unmasking",
     "unmasking policy 'factor' was taken out: take 'threshold', which"),
    (("unmasking_policy", "llada2"), "unmasking",
     "unmasking policy 'llada2' was taken out: take 'low-confidence-dynamic' with the setting "
     "threshold=0.95, which is the same."),
    (("scorer", "mc", {"estimator": "llada", "num_samples": 6, "batch_size": 4}), "num_samples",
     "num_samples=6 must be a multiple of 4, the"),
    (("scorer", "mc", {"spread": "gauss"}), "num_samples",
     "num_samples=32 must be a multiple of 3, the"),
    (("scorer", "mc", {"spread": "gauss", "num_samples": 4}), "num_samples",
     "num_samples=4 must be a multiple of 3, the"),
]  # fmt: skip

CONSTRAINTS: list[Row] = [
    (("regx", {}), "constraint", "unknown constraint 'regx'. Did you mean 'regex'"),
    (("choice", {"choices": []}), "choices", "at least 1 item"),
    (("choice", {"choices": [""]}), "choices.0", "at least 1 character"),
    (("choice", {"choices": ["x" * 300] * 1000}), "constraint", "more than 200000 characters"),
    (("json-schema", {"schema": {}, "max_depth": 9}), "max_depth", "less than or equal to 8"),
]  # fmt: skip


def made(given: tuple[str, str, dict[str, object]] | tuple[str, str]) -> object:
    kind, *named = given
    return getattr(installed_catalog(), kind)(*named)


def constraint(given: tuple[str, dict[str, object]]) -> object:
    name, settings = given
    params = SamplingParams(constraint=name, constraint_settings=settings)
    chosen = installed_catalog().chosen(CONSTRAINT, params)
    assert chosen is not None
    return chosen.expression()


TABLES = [
    Table("SamplingParams", raised(lambda given: SamplingParams(**given)), SETTINGS),
    Table("EngineConfig", raised(lambda given: EngineConfig(**given)), DEVICES),
    Table("selector", raised(lambda given: installed_catalog().selector(*given)), SELECTORS),
    Table("catalog", raised(made), NAMES),
    Table("constraint", raised(constraint), CONSTRAINTS),
]
