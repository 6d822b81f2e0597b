"""dise-lm-eval: lm-evaluation-harness's own command, with the model "dise" among its models.

Its releases up to 0.4.13 look for no plugins; later ones find the entry point in the group lm_eval.models by themselves.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Register the model and run lm_eval with this command's arguments."""
    try:
        import lm_eval.models  # noqa: F401 (fills the registry, which must not be empty when ours joins)
        from lm_eval.__main__ import cli_evaluate
        from lm_eval.api.registry import MODEL_REGISTRY, register_model
    except ImportError as error:
        print(f"dise-lm-eval: {error.name} is missing: pip install 'dise[lm-eval]'", file=sys.stderr)
        sys.exit(2)
    from dise_app.harness.model import DiseLM

    if "dise" not in MODEL_REGISTRY:
        register_model("dise")(DiseLM)
    cli_evaluate()


if __name__ == "__main__":
    main()
