"""The fields of usage of the packages that only this environment has, held against the table and against their record.

The test that is imported runs here once more, with these packages.
"""

from __future__ import annotations

import json

import pytest

from tests.items.test_usage_fields import (
    RECORD,
    installed,
    test_every_field_of_usage_is_read_or_ignored_with_a_reason,  # noqa: F401
)

RECORDED = {"anthropic.types": "anthropic", "anthropic.types.beta": "anthropic", "inspect_ai.model": "inspect"}
RECORDED["openinference.semconv.trace"] = "openinference"


@pytest.mark.parametrize("module", RECORDED)
def test_the_record_is_what_the_installed_package_has(module: str) -> None:
    kept = json.loads(RECORD.read_text(encoding="utf-8"))

    # Written anew with: json.dumps({module: sorted(installed(RECORDED[module], module)) for module in RECORDED}, indent=1)
    assert kept.keys() == RECORDED.keys()
    assert sorted(installed(RECORDED[module], module)) == kept[module]
