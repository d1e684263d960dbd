"""Reads rows sent to a page as HTML like a reader of the page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import unescape
from typing import Any


def words(rows: str | dict[str, Any] | Iterable[dict[str, Any]]) -> str:
    """Return the text of HTML, of a row, or of several rows, one line each."""
    if isinstance(rows, str):
        return unescape(re.sub(r"<[^>]*>", "", rows))
    return words(rows["html"]) if isinstance(rows, dict) else "\n".join(map(words, rows))


def cells(row: dict[str, Any]) -> dict[str, str]:
    """Return the texts of a row's cells by column name."""
    found = re.findall(r'data-name="([^"]*)"[^>]*>(.*?)</t[hd]>', row["html"], re.DOTALL)
    return {name: words(inside) for name, inside in found}


def part(row: dict[str, Any], kind: str) -> str:
    """Return the text of the first element of a class in a row, without nested elements of that kind; empty for none."""
    found = re.search(rf'<(\w+)[^>]*? class="{kind}"[^>]*>(.*?)</\1>', row["html"], re.DOTALL)
    return "" if found is None else words(found[2])


def texts(row: dict[str, Any]) -> list[str]:
    """Return the texts of all cells of a row."""
    return [words(inside) for _, inside in re.findall(r"<(t[hd])[^>]*>(.*?)</\1>", row["html"], re.DOTALL)]
