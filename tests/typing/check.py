"""Runs type checkers on what users write: README's Python and usage.py, copied out of the clone, so
that neither its settings nor a plugin apply and the packages are those of an installed library.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]

CHECKERS = (
    ("mypy", "--strict", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache' / 'users'}", "."),
    ("pyright", "--pythonpath", sys.executable),
)


def main() -> None:
    """Exit with 1 where a checker reports anything."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```", readme, flags=re.DOTALL | re.MULTILINE)
    with TemporaryDirectory() as folder:
        Path(folder, "readme.py").write_text("\n\n".join(blocks), encoding="utf-8")
        shutil.copy(ROOT / "tests/typing/usage.py", folder)
        codes = [subprocess.call([sys.executable, "-m", *each], cwd=folder) for each in CHECKERS]
    sys.exit(any(codes))


if __name__ == "__main__":
    main()
