"""Tokenizers and chat templates: what is broken is refused in one line, and no template runs code
of its own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_adapters.embedded import CountdownPredictor
from dise_adapters.embedded.tokenizer import ShippedTokenizer
from dise_core.errors import CheckpointError, InputError
from dise_core.models.inputs import variables_of
from tests.hostile.bounds import bounded, one_line
from tests.reference_llada import write_tokenizer
from tests.tiny_format import edit

CHAT = [{"role": "user", "content": "83,18,75 -> 10"}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path, 50)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tokenizer.json", {"model": None}),
        ("tokenizer.json", {"added_tokens": [{"id": 10**12, "content": "x"}]}),
        ("tokenizer_config.json", {"mask_token": 7}),
    ],
)
def test_a_tokenizer_that_its_library_refuses_is_one_line(
    folder: Path, name: str, changes: dict[str, object]
) -> None:
    edit(folder / name, **changes)
    with one_line(f"cannot load the tokenizer in {folder}: ."):
        FastTokenizer.from_folder(folder)


def test_what_fails_only_when_it_is_tried_is_told_as_a_trial(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", chat_template=[{"name": "tool", "template": "x"}])
    with one_line(f"cannot load the tokenizer in {folder}: it fails on a trial text, its special"):
        FastTokenizer.from_folder(folder)


def test_the_expression_of_a_panic_is_one_line(folder: Path) -> None:
    """Oniguruma gives up after ten million steps, and the tokenizers library panics."""
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    edit(folder / "tokenizer.json", pre_tokenizer=split | {"pattern": {"Regex": "(a+)+$"}})
    tokenizer = FastTokenizer.from_folder(folder)
    with bounded(), pytest.raises(CheckpointError, match="the tokenizer fails on the text"):
        tokenizer.encode("a" * 40 + "b")


def test_no_text_is_padded_or_cut(folder: Path) -> None:
    padding = {"strategy": {"Fixed": 10**7}, "direction": "Right", "pad_to_multiple_of": None}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "a"}
    truncation = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    edit(folder / "tokenizer.json", padding=padding, truncation=truncation)
    with bounded():
        assert len(FastTokenizer.from_folder(folder).encode("abcd")) == 4


def test_half_a_surrogate_pair_is_no_text(folder: Path) -> None:
    with pytest.raises(InputError, match="half a surrogate pair at 1"):
        FastTokenizer.from_folder(folder).encode("a\ud800")


def with_template(
    template: str, tokenizer_class: type[FastTokenizer] = FastTokenizer
) -> FastTokenizer:
    """Return the tokenizer of an embedded model with that chat template."""
    tokenizer = tokenizer_class.from_folder(CountdownPredictor.folder())
    tokenizer._tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize(
    "source",
    [
        "{{ lipsum.__globals__['os'].system('touch RAN') }}",
        "{{ raise_exception.__globals__['__builtins__'].open('RAN', 'w') }}",
        "{{ messages.append(1) }}",
        "{% include '/etc/passwd' %}",
        "{{ raise_exception('a\\n\\x1b[2Jb') }}",
        "{{ raise_exception('ab' * 10**6) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_what_a_template_may_not_do_is_one_line(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with one_line(r"chat template refuses the conversation: ."):
        with_template(source).chat_text(CHAT)
    assert not list(tmp_path.iterdir())


TO_ENVIRON = "__globals__[os].environ[DISE_API_KEY]"
ESCAPES = [
    "{{ lipsum.__globals__['os'].environ['DISE_API_KEY'] }}",
    "{{ lipsum['__globals__']['os'].environ['DISE_API_KEY'] }}",
    "{{ (lipsum|attr('__globals__'))['os'].environ['DISE_API_KEY'] }}",
    "{{ cycler.__init__.__globals__.os.environ['DISE_API_KEY'] }}",
    "{{ self.__init__.__globals__['__builtins__'].__import__('os').environ['DISE_API_KEY'] }}",
    "{{ raise_exception.__globals__['__builtins__']['__import__']('os').environ['DISE_API_KEY'] }}",
    "{{ [lipsum]|map(attribute='__globals__.os.environ.DISE_API_KEY')|join }}",
    "{{ ().__class__.__mro__[1].__subclasses__() }}",
    f"{{{{ '{{0.{TO_ENVIRON}}}'.format(lipsum) }}}}",
    f"{{{{ '{{f.{TO_ENVIRON}}}'.format_map({{'f': lipsum}}) }}}}",  # CVE-2019-10906
    f"{{{{ ('{{0.{TO_ENVIRON}}}'|attr('format'))(lipsum) }}}}",  # CVE-2025-27516
    f"{{{{ ('{{f.{TO_ENVIRON}}}'|attr('format_map'))({{'f': lipsum}}) }}}}",
    f"{{% set kept = '{{0.{TO_ENVIRON}}}'.format %}}{{{{ kept(lipsum) }}}}",  # CVE-2024-56326
]


@pytest.mark.parametrize("tokenizer_class", [FastTokenizer, ShippedTokenizer])
@pytest.mark.parametrize("escape", ESCAPES)
def test_a_template_that_reaches_for_the_environment_is_refused(
    escape: str, tokenizer_class: type[FastTokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISE_API_KEY", "the-servers-key")
    with one_line(r"chat template refuses the conversation: .*is unsafe"):
        pytest.fail(with_template(escape, tokenizer_class).chat_text(CHAT))


@pytest.mark.parametrize("tokenizer_class", [FastTokenizer, ShippedTokenizer])
def test_variables_of_a_template_cannot_be_what_it_is_given_anyway(
    tokenizer_class: type[FastTokenizer],
) -> None:
    tokenizer = with_template("{{ tools }} {{ x }}", tokenizer_class)
    given = tokenizer.with_template_kwargs({"x": [1]})
    assert (given.chat_text(CHAT), tokenizer.chat_text(CHAT)) == ("None [1]", "None ")
    for name in ("self", "messages", "tools", "add_generation_prompt", "bos_token"):
        with pytest.raises(InputError, match=f"_kwargs may not hold {name}, which"):
            tokenizer.with_template_kwargs({name: "x"})


def test_the_options_of_transformers_are_no_variables_of_a_template() -> None:
    tokenizer = with_template("{{ x }}")
    for name in ("chat_template", "tokenize", "documents", "max_length"):
        with pytest.raises(InputError, match=f"_kwargs may not hold {name}, which"):
            tokenizer.with_template_kwargs({name: "{{ 7 * 7 }}"})


@pytest.mark.parametrize(
    ("kwargs", "problem"),
    [
        ({"x": "a" * 4096}, "have 4105 characters as JSON, more than the 4096"),
        ({"x": [{"y": -(10**6)}]}, "-1000000 in chat_template_kwargs has more than 6"),
        ({"x": 1e300}, "in chat_template_kwargs has more than 6 digits"),
        ({"x": float("nan")}, "must be what JSON can express"),
        ({"x": {1, 2}}, "must be what JSON can express"),
        ({1: 2}, "must be a JSON object, not dict: {1: 2}"),
        ([], "must be a JSON object, not list"),
    ],
)
def test_variables_of_a_template_are_bounded_json(kwargs: Any, problem: str) -> None:
    with bounded(), pytest.raises(InputError, match=re.escape(problem)) as caught:
        variables_of(kwargs)
    assert caught.value.parameter == "chat_template_kwargs"


def test_variables_of_a_template_within_the_bounds_are_kept() -> None:
    kwargs = {"x": [True, None, -999_999, 0.5, {"y": "1000000"}]}
    assert variables_of(kwargs) == kwargs
