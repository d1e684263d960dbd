"""Every planted secret is replaced, whatever form its place has, and no harmless text changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from noetic_nb.lab import datasets
from noetic_nb.redact import REDACTED, Redaction, redact, redact_text
from noetic_nb.redact._levels import may_hold, spans_of
from tests.matrix import sampled
from tests.redaction.planted import HARMLESS, PLANTED


@pytest.mark.parametrize("place", PLANTED)
def test_a_planted_secret_is_replaced(place: str) -> None:
    given, secret = PLANTED[place]

    clean = redact(given)

    assert REDACTED in str(clean)
    assert secret not in str(clean)
    assert redact(clean) == clean
    if isinstance(given, str):
        # Inside JSON, in a field of data, and where lines without a sign are remembered.
        for written in (json.dumps({"note": f"see\n{given}"}), json.dumps(json.dumps([f"{given}\n"]))):
            assert secret not in redact_text(written)
            json.loads(redact_text(written))
        assert may_hold(given.split("\n")) or not spans_of(given)
        assert Redaction(remembered=10_000).text(f"{given}\n{'An ordinary line. ' * 4}") == (
            Redaction().text(f"{given}\n{'An ordinary line. ' * 4}")
        )
    elif place not in ("bytes", "rows"):  # which JSON text does not have, and no text is read as
        assert secret not in redact_text(json.dumps(given))
        assert secret not in redact_text(json.dumps(given, indent=2))


@pytest.mark.parametrize("given", HARMLESS, ids=range(len(HARMLESS)))
def test_a_harmless_text_stays(given: Any) -> None:
    assert redact(given) == given
    for text in (json.dumps(given), json.dumps({"text": given}, indent=1), str(given)):
        assert redact_text(text) == text


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["airline", "retail", "telecom", "banking", "workspace"])
def test_no_message_of_the_packaged_data_changes(name: str) -> None:
    runs = datasets.agentdojo(name) if name in ("banking", "workspace") else getattr(datasets, name)()

    for run in sampled(runs, keep=12):
        for thread in run.threads:
            for item in run.log(thread):
                if item.get("name") == "update_password":  # its argument is a password, as its name says
                    continue
                assert redact(item) == item
                text = json.dumps(item, ensure_ascii=False)
                assert redact_text(text) == text
