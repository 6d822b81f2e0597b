"""Word problems of one step, in English: drawn from sentence patterns, with worked answers.

patterns.txt has the sentences and words.txt what fills them.
"""

from __future__ import annotations

import argparse
import json
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random

OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
}

LARGEST, LARGEST_RESULT = 20, 100
"""The largest number that is added, and the largest of all, which is a product."""

COUNTED = {
    "legs": {
        8: "spiders",
        6: "ants bees flies beetles insects butterflies",
        4: "dogs cats horses cows tables chairs sheep lions pigs rabbits frogs elephants mice "
        "goats bears zebras",
        2: "birds hens chickens ducks people children men women penguins",
    },
    "wheels": {4: "cars", 2: "bikes bicycles scooters motorbikes", 3: "tricycles"},
    "eyes": {2: "people cats dogs birds fish horses children cows", 8: "spiders"},
    "arms": {8: "octopuses", 2: "people children", 5: "starfish"},
    "wings": {2: "birds planes ducks", 4: "butterflies bees dragonflies"},
    "ears": {2: "rabbits dogs cats people elephants horses"},
    "fingers": {5: "hands", 10: "people children"},
    "sides": {
        3: "triangles",
        4: "squares rectangles",
        5: "pentagons",
        6: "hexagons cubes",
        8: "octagons",
    },
    "corners": {3: "triangles", 4: "squares rectangles", 6: "hexagons"},
    "strings": {4: "violins", 6: "guitars"},
    "days": {7: "weeks"},
    "months": {12: "years"},
    "hours": {24: "days"},
    "eggs": {12: "dozens"},
    "years": {10: "decades"},
    "shoes": {2: "pairs"},
}
"""What everybody knows: how many of these each of those has."""

MEASURED = ("days", "months", "hours", "eggs", "years", "shoes")
"""Of these, what is not "had"."""

OTHER_ANSWER = "I only solve word problems."
"""The answer to every other text."""

SINGULAR = {
    "children": "child",
    "people": "person",
    "men": "man",
    "women": "woman",
    "boxes": "box",
    "shelves": "shelf",
    "classes": "class",
    "buses": "bus",
}

CHOICE = re.compile(r"\[(1:)?([^\[\]]*)\]")


@dataclass(frozen=True, slots=True)
class Problem:
    """A text, the equation `x kind y` that solves it, and what it counts. No kind: no problem."""

    text: str
    kind: str
    x: int
    y: int
    unit: str = ""

    @property
    def result(self) -> int:
        """The number that solves it. Raises KeyError without a kind."""
        return OPERATORS[self.kind](self.x, self.y)

    @property
    def answer(self) -> str:
        """The worked answer: 3 * 8 = 24 legs."""
        if not self.kind:
            return OTHER_ANSWER
        return f"{self.x} {self.kind} {self.y} = {self.result} {self.unit}".strip()


def draw_problem(random: Random, held_out: bool = False) -> Problem:
    """Return a problem, or a text that is none; `held_out`: of a pattern that is not trained on."""
    style = 1.0 if held_out else random.random()
    if style < 0.08:
        kind = random.choice("+-*/")
        pattern = random.choice(listed("patterns", f"bare {kind}"))
        return _filled(random, pattern, Problem("", kind, *_numbers(random, kind)))
    if style < 0.14:
        return _draw_counted(random)
    if style < 0.2:
        pattern = random.choice(listed("patterns", "other"))
        return _filled(random, pattern, Problem("", "", random.randint(1, LARGEST), 1))
    kind = random.choices("+-*/", (3, 4, 2, 2))[0]
    pattern = random.choice(listed("patterns", f"held out {kind}" if held_out else kind))
    return _filled(random, pattern, Problem("", kind, *_numbers(random, kind), "{things}"))


def _draw_counted(random: Random) -> Problem:
    """Return a question such as "How many legs do three spiders have?"."""
    unit = random.choice(list(COUNTED))
    y = random.choice(list(COUNTED[unit]))
    owners = random.choice(COUNTED[unit][y].split())
    pattern = random.choice(listed("patterns", "measured" if unit in MEASURED else "had"))
    pattern = pattern.replace("{things}", unit).replace("{owners}", owners)
    x = random.randint(2, min(12, LARGEST_RESULT // y))
    return _filled(random, pattern, Problem("", "*", x, y, unit))


def _numbers(random: Random, kind: str) -> tuple[int, int]:
    """Return the numbers of an equation. Quotients have no remainder; differences are above 0."""
    if kind == "+":
        return random.randint(1, LARGEST), random.randint(1, LARGEST)
    if kind == "-":
        x = random.randint(2, LARGEST)
        return x, random.randint(1, x - 1)
    x, y = random.randint(2, 10), random.randint(2, 10)
    return (x, y) if kind == "*" else (x * y, y)


def _filled(random: Random, pattern: str, problem: Problem) -> Problem:
    """Return the problem with its text, and its unit in words."""
    text, question, unit = _chosen(random, pattern).partition("?=")
    words = _words(random, problem)
    text = (text + question[:1]).format(**words)
    unit = (unit or problem.unit).format(**words)
    if "{" in problem.unit and random.random() < 0.2:
        text = _distracted(random, text, words)
    if unit and random.random() < 0.12:
        text = f"{random.choice(listed('patterns', 'idle')).format(**words)} {text}"
    if problem.kind and random.random() < 0.2:
        asked = random.choice(["how many", "And how many", "So how many", "Then how many"])
        text = text.replace("How many", asked)
    text = re.sub(r" ([?.,])", r"\1", re.sub(r" +", " ", text).strip())
    text = text.lower() if random.random() < 0.12 else text[:1].upper() + text[1:]
    text = text.rstrip("?.") if random.random() < 0.1 else text
    return Problem(text, problem.kind, problem.x, problem.y, unit.lower())


def _chosen(random: Random, pattern: str) -> str:
    """Return the pattern with one alternative of each pair of brackets."""
    tied = random.randrange(1 << 20)
    while found := CHOICE.search(pattern):
        options = found[2].split("|")
        chosen = options[tied % len(options)] if found[1] else random.choice(options)
        pattern = pattern[: found.start()] + chosen + pattern[found.end() :]
    return pattern


def _distracted(random: Random, text: str, words: dict[str, str]) -> str:
    """Return the text with a sentence more, whose number has nothing to do with the question."""
    words = words | {"w": str(random.randint(2, LARGEST))}
    pattern = random.choice(listed("patterns", "distracting"))
    sentences = re.split(r"(?<=\.) ", text)
    place = random.randrange(len(sentences))
    return " ".join(
        [*sentences[:place], _chosen(random, pattern).format(**words), *sentences[place:]]
    )


def _words(random: Random, problem: Problem) -> dict[str, str]:
    """Return what stands in a pattern's places."""
    is_he = random.random() < 0.5
    things, others = _things(random)
    people, guests = random.sample(listed("words", "people"), 2)
    boxes = random.choice(listed("words", "boxes"))
    words = dict(zip("ABC", _names(random, is_he), strict=True))
    words |= dict(
        zip(
            ("he", "He", "him", "his"),
            ("he", "He", "him", "his") if is_he else ("she", "She", "her", "her"),
            strict=True,
        )
    )
    words |= {"things": things, "others": others, "boxes": boxes, "box": _singular(boxes)}
    words |= {"people": people, "person": _singular(people), "guests": guests}
    words["park"], words["shop"] = random.sample(listed("words", "places"), 2)
    words["red"], words["blue"] = random.sample(listed("words", "adjectives"), 2)
    words["Monday"], words["Tuesday"] = random.sample(listed("words", "days"), 2)
    words["France"] = random.choice(listed("words", "world"))
    words |= {name: str(random.randint(2, LARGEST)) for name in ("w", "z")}
    spelled = listed("words", "numbers") if random.random() < 0.25 else ()
    for name, number in (("x", problem.x), ("y", problem.y)):
        words[name] = spelled[number] if number < len(spelled) else str(number)
    return words


def _names(random: Random, is_he: bool) -> list[str]:
    """Return three names, the first of which is a man's or a woman's; one in eight is made up."""
    he, she = listed("words", "he"), listed("words", "she")
    first = random.choice(he if is_he else she)
    names = [first, *random.sample([name for name in he + she if name != first], 2)]
    return [_invented(random).capitalize() if random.random() < 1 / 8 else name for name in names]


def _things(random: Random) -> tuple[str, str]:
    """Return two kinds of things: words, made-up words, words with adjectives and compounds."""
    things, others = random.sample(listed("words", "things"), 2)
    style = random.random()
    if random.random() < 1 / 8:
        things = f"{_invented(random)}s"
    if style < 0.15:
        quality, other = random.sample(listed("words", "adjectives"), 2)
        others = f"{other} {things}" if random.random() < 0.6 else others
        return f"{quality} {things}", others
    if style < 0.22:
        return f"{random.choice(listed('words', 'boxes'))} of {things}", others
    if style < 0.27:
        return f"{_singular(random.choice(listed('words', 'things')))} {things}", others
    return things, others


def _invented(random: Random) -> str:
    """Return a word of one to three syllables that nobody knows."""
    consonants, vowels, ends = (
        "bcdfghjklmnprstvwz",
        ("a", "e", "i", "o", "u", "ee", "oo"),
        ("", "", "n", "r", "l", "m", "ck"),
    )
    return "".join(
        random.choice(consonants) + random.choice(vowels) + random.choice(ends)
        for _ in range(random.choice((1, 2, 2, 3)))
    )


def _singular(plural: str) -> str:
    return SINGULAR.get(plural, plural.removesuffix("s"))


@cache
def listed(file: str, name: str) -> tuple[str, ...]:
    """Return a section of patterns.txt, line by line, or of words.txt, word by word."""
    text = Path(__file__).with_name(f"{file}.txt").read_text()
    [section] = re.findall(rf"^== {re.escape(name)}\n(.*?)(?:\n\n|\Z)", text, re.S | re.M)
    return tuple(section.split() if file == "words" else section.splitlines())


def main() -> None:
    """Print problems of held-out patterns as JSON lines in SVAMP's form: for `dise eval --data`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--known", action="store_true", help="of the patterns that are trained on")
    args = parser.parse_args()
    random = Random(args.seed)
    drawn = iter(lambda: draw_problem(random, held_out=not args.known), None)
    asked = (problem for problem in drawn if problem.kind)
    for problem in islice(asked, args.count):
        equation = f"( {problem.x}.0 {problem.kind} {problem.y}.0 )"
        row = {"Body": "", "Question": problem.text, "Equation": equation}
        print(json.dumps(row | {"Answer": float(problem.result)}))


if __name__ == "__main__":
    main()
