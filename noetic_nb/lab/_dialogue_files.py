"""Dialogues of public benchmarks, read from a download: a file, an archive, or a folder of files."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile, ZipFile

from noetic_nb._core.atomic_write import as_path
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.interop._formats.sources import Document, read_document, record, refused
from noetic_nb.items import Item, assistant_message, input_message, item_text
from noetic_nb.items._json_text import parsed_json
from noetic_nb.lab._dialogues import Dialogue, Evidence, Question
from noetic_nb.lab._recall_quality.evidence_ladder import SentTexts
from noetic_nb.runs._load import MAX_BYTES

_LONGEST: Final = 4 * MAX_BYTES
_SESSION: Final = re.compile(r"session_(\d{1,6})")
# Keys have the forms D1:3, D30:05 and D:11:26; some texts contain several.
_KEY: Final = re.compile(r"D:?(\d{1,6}):(\d{1,6})")
_AUDITED: Final = re.compile(r"locomo_(\d{1,6})_qa(\d{1,6})")
# The formats of LoCoMo and LongMemEval: "1:56 pm on 8 May, 2023", "2023/05/20 (Sat) 02:21".
_TIMES: Final = ("%I:%M %p on %d %B, %Y", "%Y/%m/%d (%a) %H:%M", "%Y/%m/%d")
# MemoryAgentBench has one long text, which is split into messages of this many characters, about 512 tokens.
_CHUNK: Final = 2_000
_JSON: Final = (".json", ".jsonl", ".json.gz", ".jsonl.gz")


def _records(path: str | PathLike[str], max_bytes: int, form: str) -> Iterator[tuple[Document, int, Mapping[str, Any]]]:
    """Yield the records of a file, an archive or a folder, in order, each with its document and its index there."""
    source = as_path(path)
    files = sorted(
        [file for file in source.rglob("*") if file.name.endswith((*_JSON, ".zip", ".parquet"))], key=_by_number
    )
    if source.is_dir() and not files:
        raise refused(Document(None, source), "there is no .json, .zip or .parquet file in it")
    for file in files if source.is_dir() else [source]:
        if file.suffix == ".parquet":
            document = Document(_rows(file), file)
        else:
            document = read_document(file, max_bytes)
            if document.data is None:
                document = Document(_zipped(document, max_bytes), file)
        found = [document.data] if isinstance(document.data, Mapping) else document.data
        if not isinstance(found, Sequence) or isinstance(found, str):
            raise refused(document, f"it contains no list of records. {form}")
        listed = Document(found, file, document.by_line)
        for index in range(len(found)):
            yield listed, index, record(listed, index)


def _by_number(file: Path) -> tuple[str, int, str]:
    return str(file.parent), len(file.name), file.name


def _rows(file: Path) -> Any:
    """Return the rows of an Apache Parquet table as JSON data."""
    import pandas

    try:
        return parsed_json(pandas.read_parquet(file).to_json(orient="records").encode())
    except ImportError as error:
        what = "Reading a .parquet file needs pyarrow."
        raise NoeticConfigError("MISSING_PACKAGE", what, given=str(file), hint="pip install pyarrow") from error
    except (OSError, ValueError) as error:
        raise refused(Document(None, file), f"it is not a whole table ({error})") from error


def _zipped(document: Document, max_bytes: int) -> list[Any]:
    """Return the records of an archive; the sample of ``26.json`` is ``conv-26``."""
    records: list[Any] = []
    try:
        with ZipFile(document.path or "") as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(".json")]
            if sum(member.file_size for member in members) > max_bytes:
                raise refused(document, f"it contains more than {max_bytes:,} bytes")
            for member in sorted(members, key=lambda member: _by_number(Path(member.filename))):
                name = Path(member.filename).stem
                found = parsed_json(archive.read(member))
                named = {"sample_id": f"conv-{name}" if name.isdigit() else name}
                records += [{**named, **found}] if isinstance(found, Mapping) else found
    except (
        OSError,
        BadZipFile,
        ValueError,
        TypeError,
        RecursionError,
        RuntimeError,
        NotImplementedError,
        zlib.error,
    ) as error:
        raise refused(document, f"it is not a whole archive of samples ({error})") from error
    if not records:
        raise refused(document, "there is no .json file in it")
    return records


def _time(text: object) -> float | None:
    for form in _TIMES:
        try:
            return datetime.strptime(str(text), form).replace(tzinfo=UTC).timestamp() * 1_000
        except ValueError:
            continue
    return None


def load_locomo(
    path: str | PathLike[str], *, audit: str | PathLike[str] | None = None, max_bytes: int = MAX_BYTES
) -> tuple[Dialogue, ...]:
    """Read the dialogues of LoCoMo: months of conversation between two people, with questions about it.

    Parameters
    ----------
    path : path-like
        ``locomo10.json``, another list of its form, a folder with one file per sample, or ``locomo10.zip``, which holds
        one file per dialogue without the questions: the sample of ``26.json`` is ``conv-26``, as in the list.
    audit : path-like, optional
        Corrected answer keys: ``errors.json`` of locomo-audit [2]_, or a folder with it.
    max_bytes : int, bytes
        Size limit of a file, unpacked.

    Returns
    -------
    tuple of Dialogue
        One per sample, with its sessions and their dates. The first speaker is the user, the second the assistant; each
        message begins with its speaker's name, and its id is the ``dia_id``. The kinds of questions are ``category 1``
        (multi-hop), ``2`` (temporal), ``3`` (open domain), ``4`` (single-hop) and ``5``, which cannot be answered and
        has no evidence. The value of evidence is marked if it contains the answer verbatim.

    Raises
    ------
    NoeticError
        ``invalid_run_file``, with ``path`` and the ``index`` of the sample, or of the correction.

    References
    ----------
    .. [1] Maharana et al., "Evaluating Very Long-Term Conversational Memory of LLM Agents", ACL 2024.
    .. [2] https://github.com/dial481/locomo-audit
    """
    form = "A sample is {sample_id, conversation: {speaker_a, speaker_b, session_1: [...]}, qa}."
    corrections = {} if audit is None else _corrections(Path(audit), max_bytes)
    made = [
        _sample(document, index, sample, corrections, place)
        for place, (document, index, sample) in enumerate(_records(path, max_bytes, form))
    ]
    unused = corrections.keys() - {
        (place, number) for place, one in enumerate(made) for number in range(len(one.questions))
    }
    if unused and any(one.questions for one in made):
        place, number = min(unused)
        raise refused(corrections[place, number][0], f"there is no question {number} in sample {place}")
    return tuple(made)


def _corrections(path: Path, max_bytes: int) -> dict[tuple[int, int], tuple[Document, int, Mapping[str, Any]]]:
    """Return corrections by the index of the sample and of the question."""
    form = "A correction is {question_id: 'locomo_0_qa1', question, correct_evidence: [...], correct_answer}."
    found: dict[tuple[int, int], tuple[Document, int, Mapping[str, Any]]] = {}
    for document, index, one in _records(path / "errors.json" if path.is_dir() else path, max_bytes, form):
        named = _AUDITED.fullmatch(str(one.get("question_id")))
        if named is None or not isinstance(one.get("correct_evidence"), list):
            raise refused(document, form, index=index)
        found[int(named[1]), int(named[2])] = document, index, one
    return found


def _sample(
    document: Document,
    index: int,
    sample: Mapping[str, Any],
    corrections: Mapping[tuple[int, int], tuple[Document, int, Mapping[str, Any]]],
    place: int,
) -> Dialogue:
    def refuse(what: str) -> NoeticError:
        return refused(document, what, index=index)

    # Some files have the sessions at the top level.
    talk = sample["conversation"] if isinstance(sample.get("conversation"), Mapping) else sample
    speakers = [talk.get("speaker_a"), talk.get("speaker_b")]
    if not all(isinstance(speaker, str) for speaker in speakers):
        raise refuse("speaker_a or speaker_b is missing")
    numbers = sorted([int(match[1]) for key in talk if (match := _SESSION.fullmatch(key))])
    if not numbers:
        raise refuse("it has no session")
    sessions, texts = [], {}
    for number in numbers:
        entries = talk[f"session_{number}"]
        if not isinstance(entries, list):
            raise refuse(f"`session_{number}` must be a list")
        items = []
        for at, entry in enumerate(entries):
            if not isinstance(entry, Mapping) or not isinstance(entry.get("text"), str):
                raise refuse(f"`session_{number}` must contain text, but has {entry!r:.80}")
            if entry.get("speaker") not in speakers:
                raise refuse(
                    f"`session_{number}` has a speaker who is not one of {speakers}: {entry.get('speaker')!r:.80}"
                )
            picture = entry.get("blip_caption")
            shown = f"\n[picture: {picture}]" if isinstance(picture, str) and picture else ""
            make: Any = input_message if entry["speaker"] == speakers[0] else assistant_message
            item_id = str(entry.get("dia_id") or f"D{number}:{at + 1}")
            items.append(make(f"{entry['speaker']}: {entry['text']}{shown}", item_id=item_id))
            texts[item_id] = item_text(items[-1])
        sessions.append(tuple(items))
    asked = sample.get("qa", [])
    if not isinstance(asked, list) or not all(isinstance(one, Mapping) for one in asked):
        raise refuse("`qa` must be a list of questions")
    questions = []
    for number, one in enumerate(asked):
        keys, answer = one.get("evidence"), one.get("answer")
        if (place, number) in corrections:
            where, at, correction = corrections[place, number]
            if correction.get("question") != one.get("question"):
                raise refused(where, f"question {number} of sample {place} is another one", index=at)
            keys, answer = correction["correct_evidence"], correction.get("correct_answer", answer)
        named = [f"D{int(a)}:{int(b)}" for key in keys or () for a, b in _KEY.findall(str(key))]
        category = one.get("category")
        parts = [] if category == 5 else [key for key in dict.fromkeys(named) if key in texts]
        said = None if answer is None else str(answer)
        evidence = tuple([Evidence(key, _said(said, texts[key])) for key in parts])
        questions.append(Question(str(one.get("question")), evidence, f"category {category}", answer=said))
    dates = tuple([_time(talk.get(f"session_{number}_date_time")) for number in numbers])
    return Dialogue(f"locomo-{sample.get('sample_id') or index}", tuple(sessions), tuple(questions), dates)


def _said(answer: str | None, text: str) -> str | None:
    return answer if answer is not None and SentTexts([text]).has(answer) else None


def load_longmemeval(path: str | PathLike[str], *, max_bytes: int = _LONGEST) -> tuple[Dialogue, ...]:
    """Read the questions of LongMemEval, each with its own sessions.

    Parameters
    ----------
    path : path-like
        ``longmemeval_oracle.json``, ``longmemeval_s.json`` or another list of their form; an archive or a folder of them.
    max_bytes : int, bytes
        Size limit of a file.

    Returns
    -------
    tuple of Dialogue
        One per entry, with its sessions ordered by date. The messages with ``has_answer`` are evidence; their value is
        marked if they contain the answer verbatim. The kind is the ``question_type``; unanswerable questions, whose id
        ends with ``_abs``, have the kind ``abstention`` and no evidence.

    Raises
    ------
    NoeticError
        ``invalid_run_file``, with ``path`` and the ``index`` of the entry.

    References
    ----------
    .. [1] Wu et al., "LongMemEval: Benchmarking Chat Assistants on Long-Term Interactive Memory", ICLR 2025.
    """
    form = "An entry is {question_id, question, haystack_sessions: [[{role, content}]]}."
    return tuple([_entry(*found, form) for found in _records(path, max_bytes, form)])


def _entry(document: Document, index: int, entry: Mapping[str, Any], form: str) -> Dialogue:
    sessions, question = entry.get("haystack_sessions"), entry.get("question")
    if not isinstance(sessions, list) or not isinstance(question, str):
        raise refused(document, form, index=index)
    told = entry.get("haystack_dates") or ()
    dates = [_time(told[number]) if number < len(told) else None for number in range(len(sessions))]
    made: list[tuple[Item, ...]] = []
    evidence: list[Evidence] = []
    answer = None if entry.get("answer") is None else str(entry["answer"])
    for number, session in enumerate(sessions):
        items: list[Item] = []
        if not isinstance(session, list):
            raise refused(document, f"session {number} is not a list of messages", index=index)
        for place, message in enumerate(session):
            if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
                raise refused(document, f"message {place} of session {number} has no content", index=index)
            item_id = f"{number}:{place}"
            make: Any = assistant_message if message.get("role") == "assistant" else input_message
            items.append(make(message["content"], item_id=item_id))
            if message.get("has_answer") is True:
                evidence.append(Evidence(item_id, _said(answer, message["content"])))
        made.append(tuple(items))
    # The sessions of the oracle file are unordered.
    known = [date for date in dates if date is not None]
    order = sorted(range(len(made)), key=lambda at: dates[at] or 0.0) if len(known) == len(made) else range(len(made))
    abstains = str(entry.get("question_id")).endswith("_abs")
    kind = "abstention" if abstains else str(entry.get("question_type") or "")
    asked = Question(
        question, () if abstains else tuple(evidence), kind, answer=answer, when_ms=_time(entry.get("question_date"))
    )
    name = f"longmemeval-{entry.get('question_id') or index}"
    return Dialogue(name, tuple([made[at] for at in order]), (asked,), tuple([dates[at] for at in order]))


def load_memory_agent_bench(path: str | PathLike[str], *, max_bytes: int = _LONGEST) -> tuple[Dialogue, ...]:
    """Read the contexts of MemoryAgentBench, each with its questions.

    Parameters
    ----------
    path : path-like
        A file of the data set, such as ``Accurate_Retrieval-00000-of-00001.parquet``, which needs pyarrow, or its rows
        as JSON, a list or one per line; an archive or a folder of them.
    max_bytes : int, bytes
        Size limit of a JSON file.

    Returns
    -------
    tuple of Dialogue
        One per row: the context in messages of at most 2,000 characters, in one session. The value of a question's
        evidence is the first of its answers that the context contains verbatim; messages are not marked. Without such
        an answer there is no evidence. The kind is the ``source``.

    Raises
    ------
    NoeticError
        ``invalid_run_file``, with ``path`` and the ``index`` of the row.
    NoeticConfigError
        ``MISSING_PACKAGE`` for a table without pyarrow.

    References
    ----------
    .. [1] Hu, Y., Wang, Y., and McAuley, J., "Evaluating Memory in LLM Agents via Incremental Multi-Turn Interactions", 2025.
    """
    form = "A row is {context, questions: [...], answers: [[...]], metadata}."
    return tuple([_row(*found, form) for found in _records(path, max_bytes, form)])


def _row(document: Document, index: int, row: Mapping[str, Any], form: str) -> Dialogue:
    context, questions, answers = row.get("context"), row.get("questions"), row.get("answers")
    if not isinstance(context, str) or not isinstance(questions, list) or not isinstance(answers, list):
        raise refused(document, form, index=index)
    if not context.strip() or not all(isinstance(one, str) for one in questions):
        raise refused(document, form, index=index)
    if len(answers) != len(questions):
        raise refused(document, f"it has {len(questions)} questions and {len(answers)} answers", index=index)
    meta = row["metadata"] if isinstance(row.get("metadata"), Mapping) else {}
    said, asked = SentTexts([context]), []
    for question, given in zip(questions, answers, strict=True):
        allowed = [str(one) for one in (given if isinstance(given, list) else [given])]
        found = [Evidence(None, one) for one in allowed if said.has(one)][:1]
        asked.append(
            Question(question, tuple(found), str(meta.get("source") or ""), answer=allowed[0] if allowed else None)
        )
    chunks = [input_message(text, item_id=f"chunk-{at}") for at, text in enumerate(_chunks(context))]
    return Dialogue(
        f"memory_agent_bench-{document.path.stem if document.path else ''}-{index}", (tuple(chunks),), tuple(asked)
    )


def _chunks(text: str) -> Iterator[str]:
    """Yield parts of a text, cut after a line or a word if possible."""
    start = 0
    while start < len(text):
        stop = min(len(text), start + _CHUNK)
        if stop < len(text):
            half = start + _CHUNK // 2
            cut = max(text.rfind("\n", half, stop), 0) or text.rfind(" ", half, stop)
            stop = cut + 1 if cut > start else stop
        if text[start:stop].strip():
            yield text[start:stop].strip()
        start = stop
