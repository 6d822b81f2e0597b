"""JSON Schema's own tests, where JSON_SCHEMA_TEST_SUITE names their folder: a checkout of
JSON-Schema-Test-Suite, or the folder `json` of the source archive of jsonschema.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from dise_core import InputError
from dise_strategies.constraints.schema.texts import SPACINGS
from dise_strategies.constraints.schema.writer import expression_of
from tests.strategies.constraints.test_schema import is_valid, texts

SUITE = os.environ.get("JSON_SCHEMA_TEST_SUITE")

pytestmark = pytest.mark.skipif(SUITE is None, reason="JSON_SCHEMA_TEST_SUITE names no folder")


def groups() -> Iterator[Any]:
    folder = Path(SUITE or "", "tests", "draft2020-12")
    for file in sorted([*folder.glob("*.json"), *folder.glob("optional/**/*.json")]):
        for group in json.loads(file.read_text()):
            yield pytest.param(group, id=f"{file.stem}: {group['description']}")


@pytest.mark.parametrize("group", list(groups()) if SUITE else [])
def test_no_invalid_value_of_the_suite_is_accepted(group: Any) -> None:
    try:
        expression = expression_of(group["schema"], SPACINGS["json"])
    except InputError as error:
        pytest.skip(str(error))
    for case in group["tests"]:
        text = json.dumps(case["data"], ensure_ascii=False)
        assert case["valid"] or not re.fullmatch(expression, text), case

    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(texts(expression))
    def check(text: str) -> None:
        assert is_valid(json.loads(text), group["schema"]), text

    check()
