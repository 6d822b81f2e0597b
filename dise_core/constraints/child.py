"""Run as a program: reads a regular expression, writes the edges of its automaton, within limits.

Arguments: the folder of outlines_core, bytes of memory, seconds. Writes uint32: the first state and
the number of states; where each edge begins; their bytes; where they lead. END is the byte of edges
that final states have. Instead, with exit code 1: a line that says why.
"""

from __future__ import annotations

import sys
from array import array

END = 256


def limit(memory: int, seconds: int) -> None:
    """Limit this process, where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def edges(expression: str) -> list[array[int]]:
    """Return the arrays to write."""
    from outlines_core import Index, Vocabulary

    index = Index(expression, Vocabulary(END, {bytes([byte]): [byte] for byte in range(END)}))
    transitions = index.get_transitions()
    names = {state: name for name, state in enumerate(transitions)}
    sources, keys, targets = array("I"), array("I"), array("I")
    for state, row in transitions.items():
        sources.extend([names[state]] * len(row))
        keys.extend(row.keys())
        targets.extend([names.get(target, len(names)) for target in row.values()])
    first = names.get(index.get_initial_state(), len(names))
    return [array("I", [first, len(names)]), sources, keys, targets]


def main() -> None:
    """Read the expression from standard input and write its edges to standard output."""
    folder, memory, seconds = sys.argv[1:]
    sys.path.append(folder)
    limit(int(memory), int(seconds))
    try:
        written = edges(sys.stdin.buffer.read().decode())
    except ValueError as error:
        print(" ".join(str(error).split())[:300])
        sys.exit(1)
    for part in written:
        sys.stdout.buffer.write(part.tobytes())


if __name__ == "__main__":
    main()
