"""Chat templates: none runs code of its own, and a refusal is one line."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dise_adapters.checkpoint.tokenizer import FastTokenizer
from dise_adapters.embedded import CountdownPredictor
from dise_core import AsyncLLM, SamplingParams
from dise_core.engine import async_engine
from dise_core.errors import InputError

CHAT = [{"role": "user", "content": "83,18,75 -> 10"}]

ESCAPES = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "classes by a filter": "{{ (''|attr('__class__')).mro() }}",
    "classes by a format": "{{ '{0.__class__.__mro__}'.format('') }}",
    "modules": "{{ lipsum.__globals__['os'].system('touch RAN') }}",
    "modules of a function": "{{ raise_exception.__globals__['__builtins__'].open('RAN', 'w') }}",
    "modules of a method": "{{ cycler.__init__.__globals__.os.system('touch RAN') }}",
    "a change of the conversation": "{{ messages.append(1) }}",
    "another change": "{{ messages[0].update(content='no') }}",
    "a file": "{% include '/etc/passwd' %}",
    "another file": "{% extends messages[0].content %}",
    "an import": "{% import 'os' as os %}{{ os.mkdir('RAN') }}",
    "an encoder": "{{ messages|tojson(cls=1) }}",
}

BROKEN = {
    "syntax": "{% if %}",
    "a division": "{{ 1 / 0 }}",
    "nothing": "{{ nothing.at.all }}",
    "a filter": "{{ messages|nofilter }}",
    "many lines": "{{ raise_exception('a\\n\\x1b[2Jb') }}",
    "a long message": "{{ raise_exception('ab' * 10**6) }}",
    "parentheses": "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}",
    "a macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
}


def tokenizer(template: str) -> FastTokenizer:
    """Return the tokenizer of an embedded model with that chat template."""
    loaded = FastTokenizer.from_folder(CountdownPredictor.folder())
    loaded._tokenizer.chat_template = template
    return loaded


@pytest.mark.parametrize("source", [*ESCAPES.values(), *BROKEN.values()], ids=[*ESCAPES, *BROKEN])
def test_what_a_template_may_not_do_is_one_line(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"chat template refuses the conversation: .") as caught:
        tokenizer(source).chat_text(CHAT)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500
    assert not list(tmp_path.iterdir())


def test_what_a_template_refuses_is_told_in_its_words() -> None:
    source = "{{ raise_exception('no tools, ' ~ messages[0].role) }}"
    with pytest.raises(InputError, match=r"template refuses the conversation: no tools, user$"):
        tokenizer(source).chat_text(CHAT)


def test_a_template_that_takes_too_long_is_given_up_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(async_engine, "START_SECONDS", 0.2)
    monkeypatch.setattr(async_engine, "LOOK_SECONDS", 0.05)
    long = "{% for i in range(3000) %}{% for j in range(9999) %}{% endfor %}{% endfor %}"

    async def ask() -> None:
        async with AsyncLLM("countdown") as llm:
            kept = llm.predictor.tokenizer
            llm.predictor.tokenizer = tokenizer(long)
            params = SamplingParams(max_tokens=8)
            with pytest.raises(InputError, match=r"longer than 0\.2 s"):
                await llm.chat(CHAT, params)
            monkeypatch.undo()
            llm.predictor.tokenizer = kept
            assert await llm.chat(CHAT, params)

    asyncio.run(ask())
