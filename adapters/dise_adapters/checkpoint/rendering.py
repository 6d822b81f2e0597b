"""A process that renders chat templates: jinja2's sandbox, as transformers sets it up, with limits.

Run as a script; its arguments are the seconds that a conversation may compute for, and the folders
to import jinja2 from. Standard input brings requests
and standard output takes answers, each as eight bytes that say its length, then as JSON. What a
template computes or fills beyond the limits ends this process, and nothing else.
"""

from __future__ import annotations

import json
import signal
import struct
import sys
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template

LENGTH = struct.Struct(">Q")
MEMORY_BYTES = 2**29
"""All that this process may ask for."""

OUTPUT_BYTES = 2**25
"""The longest answer, as JSON."""


def compiler() -> Callable[[str], Template]:
    """Return what compiles a template in the environment that transformers gives it."""
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The tag around what the model writes: its content as it is."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> nodes.Node:
            """Return the node of the block at which the parser stands."""
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_written"), [], [], body).set_lineno(line)

        def _written(self, caller: Callable[[], str]) -> str:
            return caller()

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(x: object, ensure_ascii: bool = False, **options: Any) -> str:
        if not options.keys() <= {"indent", "separators", "sort_keys"}:
            raise TypeError(f"tojson knows no {', '.join(options)}")
        return json.dumps(x, ensure_ascii=ensure_ascii, **options)

    def strftime_now(format: str) -> str:  # noqa: A002
        return datetime.now().strftime(format)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment.from_string


class Renderer:
    """Renders requests; the templates of earlier ones stay compiled."""

    def __init__(self) -> None:
        self._compile = compiler()
        self._templates: dict[str, Template] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, str]:
        """Return the text, or why there is none."""
        try:
            source = request["template"]
            if source not in self._templates:
                self._templates = {source: self._compile(source)}
            return {"text": self._templates[source].render(**request["variables"])}
        except MemoryError:
            return {"problem": f"it takes more than {MEMORY_BYTES >> 20} MiB"}
        except RecursionError:
            return {"problem": "it calls itself too deeply"}
        except Exception as error:
            told = str(error) if type(error).__name__ == "TemplateError" else repr(error)
            return {"problem": told[:1000]}


def limit() -> None:
    """Bound what this process may take, and leave interrupts to its parent."""
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for what, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (most, most))


def main(seconds: float) -> None:
    """Answer requests until standard input ends; one that computes for longer ends the process."""
    limit()
    renderer = Renderer()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sink.write(LENGTH.pack(0))
    sink.flush()
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        body = source.read(LENGTH.unpack(head)[0])
        signal.setitimer(signal.ITIMER_PROF, seconds)
        answer = json.dumps(renderer.answer(json.loads(body))).encode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        if len(answer) > OUTPUT_BYTES:
            answer = json.dumps({"problem": f"it writes {len(answer)} bytes"}).encode()
        sink.write(LENGTH.pack(len(answer)) + answer)
        sink.flush()


if __name__ == "__main__":
    sys.path.extend(sys.argv[2:])
    main(float(sys.argv[1]))
