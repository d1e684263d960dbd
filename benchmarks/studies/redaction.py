"""How many generated secrets are found, and how many harmless texts are spoiled.

    python benchmarks/studies/redaction.py FOLDER [--n 500]

FOLDER holds recorded conversations as JSON or JSON lines, packed or not. Arguments under a secret key are counted apart:
they are redacted there as anywhere.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from noetic_nb.redact import is_secret_name, redact_text
from tests.redaction.sentences import SENTENCES
from tests.redaction.shapes import SHAPES, made


def texts(value: Any, key: str = "") -> Iterator[tuple[bool, str]]:
    """Yield every text, and whether it is the value of a secret key."""
    if isinstance(value, str):
        yield is_secret_name(key), value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from texts(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, key)


def read(path: Path) -> Any:
    """Return the content of one file."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return [json.loads(line) for line in text.splitlines()] if ".jsonl" in path.name else json.loads(text)


def main() -> None:
    """Count both and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--n", type=int, default=500)
    given = parser.parse_args()
    print("shape                 found of")
    for shape in SHAPES:
        found = 0
        for seed in range(given.n):
            text, secret = made(shape, seed)
            forms = (text, json.dumps({"note": f"a\n{text}"}), json.dumps({"arguments": json.dumps({"note": text})}))
            found += not any(secret in form for form in map(redact_text, forms))
        print(f"{shape:<20} {found:>6} {given.n}")
    print("\nfile                                     texts different spoiled under_secret_keys")
    for path in sorted(p for p in given.folder.rglob("*") if ".json" in p.name):
        every = list(texts(read(path)))
        harmless = {text for secret, text in every if not secret}
        spoiled = sum(redact_text(text) != text for text in harmless)
        print(
            f"{path.name:<40} {len(every):>5} {len(harmless):>9} {spoiled:>7} {sum(secret for secret, _ in every):>17}"
        )
    print(f"sentences spoiled: {sum(redact_text(text) != text for text in SENTENCES)} of {len(SENTENCES)}")


if __name__ == "__main__":
    main()
