"""Writes what docs/reference says of each public name: where it is, and its docstring's first
paragraph. `python docs/names.py`; a new name is a line "- [`package.Name`]".
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from textwrap import fill

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
FOLDERS = (ROOT, ROOT / "adapters")
"""Where the packages are that have public names."""

ENTRY = re.compile(r"^- \[`([\w.]+)`\].*\n(?:  .*\n)*", flags=re.MULTILINE)
"""A name, and what is said of it."""


def written(page: str) -> str:
    """Return a page with all its names described anew."""
    return ENTRY.sub(lambda entry: described(entry[1]), page)


def stubs(page: str) -> str:
    """Return a page for mkdocstrings, which tells all of each name."""
    return ENTRY.sub(lambda entry: f"\n::: {entry[1]}\n", page)


def described(name: str) -> str:
    """Return a name's entry."""
    package, _, short = name.rpartition(".")
    path, docstring = found(source_of(package), short) or (None, "")
    if path is None or not docstring:
        raise SystemExit(f"docs/reference names {name}, which has no docstring. Give it one.")
    about = " ".join(docstring.partition("\n\n")[0].split())
    text = f"- [`{name}`](../../{path.relative_to(ROOT)}): {about}"
    lines = fill(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return f"{lines}\n"


def source_of(module: str) -> Path:
    """Return a module's file."""
    parts = module.replace(".", "/")
    places = (folder / end for folder in FOLDERS for end in (f"{parts}.py", f"{parts}/__init__.py"))
    return next(path for path in places if path.is_file())


def found(path: Path, name: str) -> tuple[Path, str] | None:
    """Return the file that defines what a module calls by that name, and its docstring."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for node in body:
        if isinstance(node, ast.If):  # TYPE_CHECKING
            body += node.body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return path, ast.get_docstring(node) or ""
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in assigned(node):
            is_told = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            return path, str(after.value.value) if is_told else ""
        if isinstance(node, ast.ImportFrom) and (there := imported(node, name)):
            return there
    return None


def assigned(node: ast.Assign | ast.AnnAssign) -> list[str]:
    """Return the names that a statement assigns."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [ast.unparse(target) for target in targets]


def imported(node: ast.ImportFrom, name: str) -> tuple[Path, str] | None:
    """Return what `found` does, of the module that this statement imports the name from."""
    if not (node.module or "").startswith("dise"):
        return None
    for alias in node.names:
        if alias.name == "*":
            return found(source_of(node.module), name)
        if (alias.asname or alias.name) == name:
            return found(source_of(node.module), alias.name) or as_module(node.module, alias.name)
    return None


def as_module(package: str, name: str) -> tuple[Path, str]:
    """Return a module's file and docstring."""
    path = source_of(f"{package}.{name}")
    return path, ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
