"""Chat templates: those of real models as transformers writes them, and none that takes the process
with it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from dise_adapters.checkpoint import template
from dise_adapters.checkpoint.template import render
from dise_adapters.embedded import CountdownPredictor
from dise_core.errors import InputError
from tests.hostile.bounds import bounded, cases

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content']"
    " + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

LLADA = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
    "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | "
    "trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
    "{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)

LLAMA3 = """\
{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
<|start_header_id|>system<|end_header_id|>
Today Date: {{ date_string }}
{{ system_message }}<|eot_id|>
{%- for message in messages %}
    {%- if message.role == 'user' and loop.last %}
        {{- '<|start_header_id|>user<|end_header_id|>\\n' + message['content'] | trim }}
    {%- else %}
        {{- message | tojson }}{{ message | tojson(indent=2) }}
    {%- endif %}
{%- endfor %}
"""

FEATURES = """\
{%- set ns = namespace(found=false, count=0) %}
{%- macro turn(role, text) %}<{{ role }}>{{ text|upper }}{{ caller() if caller }}{% endmacro %}
{%- for message in messages %}
    {%- if loop.index > 5 %}{% break %}{% endif %}
    {%- if not message.content %}{% continue %}{% endif %}
    {%- set ns.count = ns.count + message.content|length %}
    {% generation %}{{ message.content ~ "é<&>" }}{% endgeneration %}
    {{ turn(message['role'], message.content) }}
    {%- set ns.found = true %}
{%- endfor %}
{{ ns.found }} {{ ns.count }} {{ messages|map(attribute='role')|join(',') }}
{{ '%05.1f'|format(2) }}
{{ tools is none }} {{ documents is defined }} {{ '{:>8}'.format('x') }} {{ range(3)|list }}
{% if messages[0].role == 'tool' %}{{ raise_exception('no tools, ' ~ messages[0].role) }}{% endif %}
"""

EMBEDDED = (CountdownPredictor.folder() / "chat_template.jinja").read_text()

CHATS = [
    [{"role": "user", "content": " What is 2+2?\n"}],
    [
        {"role": "system", "content": "Be brief. é 漢 \U0001f600 <&>\"'"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "b" * 5000},
    ],
]


@pytest.fixture(scope="module", autouse=True)
def impatient() -> Iterator[None]:
    """Let templates compute for 0.15 s only, as thousands are tried, and render each anew."""
    with pytest.MonkeyPatch.context() as patch:
        template._PROCESS.close()
        patch.setattr(template, "CPU_SECONDS", 0.15)
        patch.setattr(template, "_remembered", template._rendered)
        yield
        template._PROCESS.close()


def variables(messages: object, **others: object) -> dict[str, object]:
    """Return what a template is given."""
    given = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True}
    return given | {"bos_token": "<s>", "eos_token": "</s>"} | others


@pytest.mark.parametrize("messages", CHATS)
@pytest.mark.parametrize("source", [CHATML, LLADA, LLAMA3, FEATURES])
def test_the_text_is_that_of_transformers(source: str, messages: list[dict[str, str]]) -> None:
    given = variables(messages)
    [expected], _ = render_jinja_template([messages], chat_template=source, **_others(given))
    assert render(source, given) == expected


def _others(given: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in given.items() if name != "messages"}


def test_what_a_template_refuses_is_told_in_its_words() -> None:
    with pytest.raises(InputError, match=r"template refuses the conversation: no tools, tool$"):
        render(FEATURES, variables([{"role": "tool", "content": "x"}]))
    with pytest.raises(InputError, match="this model knows the roles user and assistant"):
        render(EMBEDDED, variables(CHATS[1]))


BOMBS = {
    "a long text": "{{ 'a' * 10**9 }}",
    "a wide number": "{{ '%1000000000d' % 1 }}",
    "a wide format": "{{ '{:>1000000000}'.format(1) }}",
    "a wide filter": "{{ '%1000000000d'|format(1) }}{{ 'a'|center(10**9) }}",
    "indentation": "{{ ('a\\n' * 1000)|indent(10**9) }}{{ messages|tojson(indent=10**9) }}",
    "nested ranges": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    "{% endfor %}",
    "ranges in a filter": "{{ range(99999)|map('string')|list|length }}"
    "{% for x in range(99999) if range(99999)|list|length == 1 %}{% endfor %}",
    "joins": "{{ ['a' * 1000] | list * 10**6 }}{{ ('a' * 10**6).join(['b'] * 10**6) }}",
    "a list": "{{ ([1] * 10**9)|length }}",
    "a power": "{{ (10**(10**9))|string|length }}",
    "a macro that calls itself": "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "a recursive loop": "{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "doubling": "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}"
    "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "doubling in blocks": "{% set x = 'a' * 9999 %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 40,
    "lists of lists": "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}"
    "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "parentheses": "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}",
    "a tower": "{{ " + "not " * 20000 + "1 }}",
    "a long answer": "{{ 'a' * 10**8 }}",
    "all at once": "{{ [range(99999)|list|string * 99]|join }}" * 500,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_in_an_error(name: str) -> None:
    render(CHATML, variables(CHATS[0]))  # the process runs
    with bounded(3.0, 0.2), pytest.raises(InputError, match="chat template refuses") as caught:
        render(BOMBS[name], variables(CHATS[0]))
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500
    assert "What is" in render(CHATML, variables(CHATS[0]))


def test_a_template_may_take_half_a_gibibyte() -> None:
    with pytest.raises(InputError, match="it takes more than 512 MiB"):
        render(BOMBS["a long text"], variables(CHATS[0]))


def test_a_template_may_compute_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "CPU_SECONDS", 1.0)
    template._PROCESS.close()
    with bounded(3.0), pytest.raises(InputError, match="it computes for more than 1 s"):
        render(BOMBS["nested ranges"], variables(CHATS[0]))


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ lipsum.__globals__['os'].system('true') }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% if %}",
        "{{ 1 / 0 }}",
        "{{ nothing.at.all }}",
        "{{ messages|nofilter }}",
        "{{ messages|tojson(cls=1) }}",
        "{{ raise_exception(messages) }}",
        "{{ 'a\\nb'.format(**{1: 2}) }}",
        "{% extends messages %}",
    ],
)
def test_what_a_template_may_not_do_is_one_line(source: str) -> None:
    with pytest.raises(InputError, match="chat template refuses") as caught:
        render(source, variables(CHATS[0]))
    assert "\n" not in str(caught.value)


def test_a_conversation_that_is_no_json_is_refused() -> None:
    with pytest.raises(InputError, match="is not JSON"):
        render(CHATML, variables([{"role": "user", "content": "x", "image": object()}]))


def test_threads_get_their_own_answers() -> None:
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        for _ in range(20):
            answers[number] = render(CHATML, variables([{"role": "user", "content": f"{number}"}]))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f"user\n{number}<" in answers[number] for number in range(8))


def test_a_conversation_is_rendered_once_unless_it_fails_or_tells_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bytes] = []
    ask = template._PROCESS.ask
    monkeypatch.setattr(template, "_remembered", lru_cache(2)(template._rendered))

    def counted(request: bytes) -> Any:
        asked.append(request)
        return ask(request)

    monkeypatch.setattr(template, "_PROCESS", SimpleNamespace(ask=counted))
    for content, num_asked in (("a", 1), ("a", 1), ("b", 2), ("a", 2)):
        assert content in render(CHATML, variables([{"role": "user", "content": content}]))
        assert len(asked) == num_asked
    for source in ("{{ strftime_now('%S') }}", "{{ messages[0]['content'] + 7 }}"):
        asked.clear()
        for _ in range(2):
            with suppress(InputError):
                render(source, variables(CHATS[0]))
        assert len(asked) == 2
    asked.clear()
    for _ in range(2):
        render(
            "{{ messages[0]['content'] }}", variables([{"role": "user", "content": "x" * 2**15}])
        )
    assert len(asked) == 2


def test_one_process_renders_all_conversations() -> None:
    render(LLAMA3, variables(CHATS[0]))
    first = template._PROCESS._running
    assert first is not None
    for _ in range(20):
        render(LLAMA3, variables(CHATS[0]))
    assert template._PROCESS._running is first


ATOMS = ["messages", "''", "'ab'", "7", "10**6", "range(9)", "range(99999)", "none", "nope", "[1]"]
BINARY = ["+", "*", "**", "%", "~", "//", "/", "==", "in", "and", "is"]
FILTERS = [
    "list", "length", "upper", "tojson", "join", "string", "center(9999)", "batch(3)", "indent(99)",
    "map('string')", "select", "sort", "sum", "reverse", "format(1)", "wordwrap(1)", "slice(3)",
    "attr('__class__')", "first", "replace('a', 'aaaaaaaa')", "dictsort", "xmlattr", "pprint",
]  # fmt: skip
EXPRESSIONS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(BINARY), inner),
        st.builds("({})|{}".format, inner, st.sampled_from(FILTERS)),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
    ),
    max_leaves=6,
)
BODIES = st.recursive(
    st.builds("{{{{ {} }}}}".format, EXPRESSIONS) | st.text(max_size=8),
    lambda inner: st.one_of(
        st.builds("{{% for x in {} %}}{}{{% endfor %}}".format, EXPRESSIONS, inner),
        st.builds("{{% if {} %}}{}{{% endif %}}".format, EXPRESSIONS, inner),
        st.builds("{{% set x %}}{}{{% endset %}}{{{{ x }}}}".format, inner),
        st.builds("{{% macro m() %}}{}{{% endmacro %}}{{{{ m() }}}}".format, inner),
        st.builds("{}{}".format, inner, inner),
    ),
    max_leaves=4,
)


@given(source=BODIES)
@cases(1 / 9)
def test_any_template_ends_in_a_text_or_an_error(source: str) -> None:
    with bounded():
        try:
            assert isinstance(render(source, variables(CHATS[0])), str)
        except InputError as error:
            assert len(str(error).splitlines()) == 1  # noqa: PT017
