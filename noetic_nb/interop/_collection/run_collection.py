"""A lazy collection of many runs in files, folders and memory, with an index and expressions over its facts."""

from __future__ import annotations

import importlib
import json
import random
import sys
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

from noetic_nb._core.arguments import check_seed
from noetic_nb._core.atomic_write import as_path
from noetic_nb._core.long_work import Progress
from noetic_nb._core.names import nearest
from noetic_nb._core.optional_packages import optional_package
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.interop._collection.index_file import FACTS, Key
from noetic_nb.interop._collection.member_files import Members, parts_of, write_set
from noetic_nb.interop._importing import Failed
from noetic_nb.runs import Run
from noetic_nb.steering._predicates.cel_names import FUNCTIONS, PYTHON, cel_tokens
from noetic_nb.steering._predicates.conditions import syntax_error

if TYPE_CHECKING:
    import pandas

_WORDS: Final = frozenset(
    {"true", "false", "null", "in", "int", "uint", "double", "string", "bool", "list", "map", "type"}
)
_FUNCTIONS: Final = FUNCTIONS - {"origin", "origins", "has"} | {"all", "exists", "exists_one", "map", "filter"}
_MOST: Final = int(sys.float_info.max)
_OPEN: Final = frozenset({"meta", "labels"})


def _key(after: Sequence[str]) -> str | None:
    """Return the key that an expression reads from ``meta`` or ``labels``: ``.key`` or ``['key']``."""
    mark, key, end = after
    if mark == ".":
        return key
    try:
        return str(literal_eval(key)) if (mark, end) == ("[", "]") and key[-1:] in "\"'" else None
    except (SyntaxError, ValueError):  # a string literal that only CEL allows
        return None


def _readable(value: Any) -> Any:
    """Return data in a form that CEL accepts: lone surrogates are replaced, integers beyond 64 bits become floats."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="replace").decode()
    if isinstance(value, Mapping):
        return {_readable(key): _readable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(each) for each in value]
    return float(max(min(value, _MOST), -_MOST)) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def _invalid(what: str, text: object, hint: str) -> NoeticConfigError:
    return NoeticConfigError("INVALID_EXPRESSION", what, given=text, hint=hint)


class Expression:
    """An expression over facts. Raises `NoeticConfigError` ``INVALID_EXPRESSION``, ``MISSING_PACKAGE``."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise _invalid(
                "An expression is a text.", text, "For example where(\"outcome == false && 'refund' in tools\")."
            )
        self.text = text
        self._names = self._checked()
        what = "Expressions need the package common-expression-language."
        with optional_package(what, "pip install 'noetic_nb[rules]'"):
            cel = importlib.import_module("cel")
        try:
            self._program = cel.compile(text)
        except ValueError as error:
            what, _, _, hint = syntax_error(error)
            example = "Write it like the condition of a rule: tokens > 1000 && outcome == false."
            raise _invalid(f"The expression cannot be read: {what}.", text, f"{hint} {example}") from error

    def _checked(self) -> set[tuple[str, str | None]]:
        """Return the facts that the expression names, those of meta and labels with their keys."""
        tokens = [(kind, word) for kind, word, _ in cel_tokens(self.text)]
        words = [word for _, word in tokens] + [""] * 3
        bound = {
            words[at + 2]
            for at, (_, word) in enumerate(tokens)
            if word in ("all", "exists", "exists_one", "map", "filter")
            and words[at + 1] == "("
            and words[at + 3 :][:1] == [","]
        }
        found = set()
        for at, (kind, word) in enumerate(tokens):
            if kind != "ident" or (at and words[at - 1] == "." and words[at + 1] != "("):
                continue
            if words[at + 1] == "(":
                self._known(word, _FUNCTIONS, "function")
            elif word not in bound and word not in _WORDS:
                self._known(word, FACTS, "fact of a run")
                found.add((word, _key(words[at + 1 : at + 4]) if word in _OPEN else None))
        return found

    def _known(self, word: str, names: Any, kind: str) -> None:
        if word in names:
            return
        near = nearest(word, names)
        hint = f"Did you mean {near!r}?" if near else f"There are {', '.join(sorted(names))}."
        raise _invalid(f"{word!r} is not a {kind}", self.text, PYTHON.get(word, hint))

    def values(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return the value for each row; None if it depends on an unknown fact."""
        for name, key in self._names:
            if key is not None and rows and not any(key in row[name] for row in rows):
                keys = sorted({each for row in rows for each in row[name]})
                near = nearest(key, keys)
                hint = f"Did you mean {near!r}?" if near else f"There are {', '.join(keys[:30]) or 'none'}."
                raise _invalid(f"No run has {name}.{key}", self.text, hint)
        return [self._value(row) for row in rows]

    def _value(self, row: Mapping[str, Any]) -> Any:
        values = {name: row[name] for name, _ in self._names}
        for name, key in self._names:
            if key is not None:
                values[name] = {key: None, **values[name]}
        try:
            return self._program.execute(_readable(values))
        except LookupError:  # a key or list position that this run does not have
            return None
        except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
            if any((values[name] if key is None else values[name][key]) is None for name, key in self._names):
                return None
            hint = f"The facts are {', '.join(FACTS)}; compare a number with a number, a text with a text."
            raise _invalid(
                f"The expression fails for run {row['run_id']}: {str(error)[:120]}", self.text, hint
            ) from error

    def chosen(self, rows: Sequence[Mapping[str, Any]]) -> list[bool]:
        """Return for each row whether the expression is true; an unknown value counts as not true."""
        values = self.values(rows)
        for value in values:
            if value is not None and not isinstance(value, bool):
                hint = "Compare it: where('turns > 3'), where(\"model == 'm'\")."
                raise _invalid(f"The expression is {value!r:.60}, not true or false.", self.text, hint)
        return [value is True for value in values]


class RunCollection(Sequence[Run]):
    """Runs that are read one at a time, on demand; made by `open_runs`.

    A sequence: it supports ``len``, iteration, ``collection[0]``, and slices, which are collections too. Every lab
    function that takes a list of runs also takes a collection.

    Notes
    -----
    Expressions use the language of rules, CEL, over the columns of `to_frame`: ``outcome == false && tokens > 2000``,
    ``'refund' in tools``, ``meta.domain == "airline"``, ``labels.verdict == "wrong"``. An unknown fact is null: it
    equals only null, and an expression that needs its value is not true.
    """

    def __init__(self, members: Members, keys: Sequence[Key], failed: Sequence[Failed] = ()) -> None:
        self._members, self._keys, self._failed = members, list(keys), tuple(failed)

    @property
    def failed(self) -> tuple[Failed, ...]:
        """The unreadable records of the sources, each with its file and the error."""
        return self._failed

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> RunCollection: ...
    def __getitem__(self, index: int | slice) -> Run | RunCollection:
        if isinstance(index, slice):
            return self._of(self._keys[index])
        return self._members.load(self._keys[index])

    def __iter__(self) -> Iterator[Run]:
        for key in self._keys:
            yield self._members.load(key)

    def __repr__(self) -> str:
        failed = f", {len(self._failed)} not read: see .failed" if self._failed else ""
        return f"<RunCollection: {len(self)} {'run' if len(self) == 1 else 'runs'}{failed}>"

    def _of(self, keys: Iterable[Key]) -> RunCollection:
        return RunCollection(self._members, list(keys), self._failed)

    def rows(self) -> list[dict[str, Any]]:
        """Return the facts of the runs, in order, each with ``context`` and ``costs``, the points of sparklines."""
        facts = self._members.facts(self._keys)
        missing = [key for key in self._keys if key not in facts]
        if missing:
            hint = "Open the collection again: nn.open_runs reads what has changed."
            raise NoeticError("invalid_run_file", f"{missing[0][0]!r} has changed since it was opened.", hint=hint)
        return [facts[key] for key in self._keys]

    def where(self, expression: str) -> RunCollection:
        """Return the runs for which an expression is true.

        Parameters
        ----------
        expression : str
            In the language of rules (CEL), over the columns of `to_frame`.

        Raises
        ------
        NoeticConfigError
            ``INVALID_EXPRESSION`` for an unknown fact, or a value that is not a boolean; ``MISSING_PACKAGE``.

        Examples
        --------
        >>> import noetic_nb as nn
        >>> runs = nn.open_runs([nn.Run.from_messages([{"role": "user", "content": text}]) for text in ("hi", "ho")])
        >>> [run.turns[0].query for run in runs.where("query == 'ho'")]
        ['ho']
        """
        chosen = Expression(expression).chosen(self.rows())
        return self._of([key for key, is_chosen in zip(self._keys, chosen, strict=True) if is_chosen])

    def search(self, text: str) -> RunCollection:
        """Return the runs whose items contain all words of a text.

        Parameters
        ----------
        text : str
            Words, in any case. ``"gift card"`` in quotes matches a phrase, ``refund*`` matches a prefix.

        Raises
        ------
        NoeticConfigError
            ``INVALID_SEARCH`` for a text without a word.
        """
        found = self._members.index.search(text)
        return self._of([key for key in self._keys if key in found])

    def sort(self, by: str, *, descending: bool = False) -> RunCollection:
        """Return the runs in the order of an expression, such as ``"cost"``; runs without a value come last."""
        values = Expression(by).values(self.rows())
        known = [(value, key) for value, key in zip(values, self._keys, strict=True) if value is not None]
        try:
            known.sort(key=lambda each: each[0], reverse=descending)
        except TypeError as error:
            hint = "Sort by a number or a text, such as sort('cost')."
            raise NoeticConfigError("INVALID_EXPRESSION", "Its values have no order.", given=by, hint=hint) from error
        rest = [key for value, key in zip(values, self._keys, strict=True) if value is None]
        return self._of([*[key for _, key in known], *rest])

    def sample(self, n: int, by: str | None = None, seed: int = 0) -> RunCollection:
        """Return a random sample of the runs, in their order.

        Parameters
        ----------
        n : int
            The size of the sample; all runs if there are fewer.
        by : str, optional
            An expression such as ``"outcome"``, whose values are sampled in proportion, one run at least if `n` allows.
        seed : int
            The same seed gives the same runs.
        """
        if type(n) is not int or n < 0:
            raise NoeticConfigError(
                "INVALID_OPTION", "n must be a whole number of at least 0.", given=n, hint="For example: sample(20)."
            )
        check_seed(seed)
        chance = random.Random(int(seed))
        places = list(range(len(self)))
        if by is None:
            chosen = chance.sample(places, min(n, len(places)))
        else:
            strata = [chance.sample(stratum, len(stratum)) for stratum in self._groups(by)]
            shares = [n * len(stratum) / max(1, len(places)) for stratum in strata]
            # Take the next run from the stratum with the least of its share, starting with strata that have none.
            taken = [0] * len(strata)
            for _ in range(min(n, len(places))):
                left = [at for at, stratum in enumerate(strata) if taken[at] < len(stratum)]
                at = min(left, key=lambda at: (taken[at] > 0, taken[at] / shares[at], at))
                taken[at] += 1
            chosen = [place for stratum, count in zip(strata, taken, strict=True) for place in stratum[:count]]
        return self._of([self._keys[place] for place in sorted(chosen)])

    def split(self, share: float = 0.5, *, by: str = "task", seed: int = 0) -> tuple[RunCollection, RunCollection]:
        """Return two random parts, `share` of the runs in the first; no value of `by`, such as a task, is in both.

        A run whose task is unknown forms its own group.
        """
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            raise NoeticConfigError(
                "INVALID_OPTION", "share is from 0 to 1.", given=share, hint="For example: split(0.8)."
            )
        check_seed(seed)
        groups = self._groups(by, apart=True)
        random.Random(int(seed)).shuffle(groups)
        first: set[int] = set()
        for group in groups:
            if len(first) + len(group) / 2 <= share * len(self):
                first.update(group)
        sides = [[key for at, key in enumerate(self._keys) if (at in first) is side] for side in (True, False)]
        return self._of(sides[0]), self._of(sides[1])

    def _groups(self, by: str, *, apart: bool = False) -> list[list[int]]:
        groups: dict[str, list[int]] = {}
        for at, value in enumerate(Expression(by).values(self.rows())):
            key = f"run {at}" if apart and value is None else json.dumps(value, sort_keys=True, default=str)
            groups.setdefault(key, []).append(at)
        return [groups[key] for key in sorted(groups)]

    def to_frame(self) -> pandas.DataFrame:
        """Return a frame of facts with one row per run; no run is read for it.

        The columns are ``run_id, path, place, source, task, model, query, turns, threads, model_calls, tool_calls,
        failed_calls, tools, outcome, cost, tokens, input_tokens, output_tokens, duration_ms, decisions, denied, labels,
        meta``; see docs/behaviour/collections.md.
        """
        import pandas

        rows = self.rows()
        counts = ("place", "turns", "threads", "model_calls", "tool_calls", "failed_calls", "denied")
        numbers = ("cost", "duration_ms")
        tokens = ("tokens", "input_tokens", "output_tokens")
        dtypes = {
            **dict.fromkeys(counts, "int64"),
            **dict.fromkeys(numbers, "float64"),
            **dict.fromkeys(tokens, "Int64"),
        }
        return pandas.DataFrame(
            {name: pandas.Series([row[name] for row in rows], dtype=dtypes.get(name, "object")) for name in FACTS}
        )

    def freeze(self, name: str | PathLike[str], *, why: str) -> Path:
        """Save the runs as a set for tests: ``noetic-nb check`` runs an agent or rules against it.

        Parameters
        ----------
        name : str or path-like
            ``NAME.runset.json`` in the working directory, or a path. An existing set of this name gets a new version;
            its file keeps earlier versions with their reasons.
        why : str
            The reason for this version.

        Returns
        -------
        Path
            The file of the set: JSON, with the relative path of each run and a hash of that file. Runs without a file
            are saved in a folder ``NAME.runs`` beside it.

        Raises
        ------
        NoeticConfigError
            ``INVALID_SET`` if there is no reason, there are no runs, or the file is not a set.

        Examples
        --------
        >>> import json, tempfile
        >>> runs = open_runs([Run.from_messages([{"role": "user", "content": "Refund me."}])])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = runs.freeze(f"{folder}/refunds", why="Two of them failed in May.")
        ...     manifest = json.loads(file.read_text())
        >>> file.name, [(version["version"], version["why"], len(version["runs"])) for version in manifest["versions"]]
        ('refunds.runset.json', [(1, 'Two of them failed in May.', 1)])
        """
        members = [(self._members.path_of(key), key[1], partial(self._members.load, key)) for key in self._keys]
        return write_set(name, why, zip(members, self.rows(), strict=True))

    def to_parquet(self, path: str | PathLike[str]) -> Path:
        """Write `to_frame` to a Parquet file with plain columns: lists, mappings, labels and meta become JSON text.

        Raises `NoeticConfigError` ``MISSING_PACKAGE`` without pyarrow.
        """
        with optional_package("Parquet files need the package pyarrow.", "pip install 'noetic_nb[parquet]'"):
            import pyarrow
            from pyarrow import parquet
        frame = self.to_frame()
        for name in ("tools", "decisions", "labels", "meta"):
            frame[name] = [json.dumps(value) for value in frame[name]]
        texts = ("run_id", "path", "source", "task", "model", "query", "tools", "decisions", "labels", "meta")
        for name in texts:
            frame[name] = frame[name].map(
                lambda value: value if value is None or isinstance(value, str) else json.dumps(value)
            )
        fields = [(name, pyarrow.string()) for name in texts] + [("outcome", pyarrow.bool_())]
        frame["outcome"] = [value if isinstance(value, bool) else None for value in frame["outcome"]]
        known = dict(fields)
        columns = {name: pyarrow.array(frame[name], type=known.get(name), from_pandas=True) for name in frame.columns}
        parquet.write_table(pyarrow.table(columns), path)
        return Path(path)


def open_runs(source: Any, *, index: str | PathLike[str] | None = None, progress: Progress = True) -> RunCollection:
    """Open many runs as one collection, without loading them into memory.

    Parameters
    ----------
    source : path-like, iterable or object
        A folder, a file with one or more runs in any format of `import_run`, several of these, or runs.
    index : path-like, optional
        The file of the index. By default ``.noetic-runs.sqlite`` in the folder; in the user's cache if the folder is
        not writable or the files are in several folders; in memory if runs have no file.
    progress : bool or callable
        As for `import_runs`.

    Returns
    -------
    RunCollection
        The runs in the order of their paths, and of their positions in a file. Only files that are new or changed since
        the index was written are read. ``.failed`` lists the unreadable records.

    Raises
    ------
    NoeticConfigError
        ``NO_RUNS`` if there is no such file or folder, ``INVALID_INDEX`` if the index is another program's file.
    NoeticError
        ``storage_failed`` if the index cannot be written, ``invalid_run_file`` if no object of `source` is a run.

    References
    ----------
    .. [1] docs/behaviour/collections.md

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Run.from_messages([{"role": "user", "content": "Refund me."}]).save(f"{folder}/one.jsonl.gz")
    ...     runs = open_runs(folder)
    ...     print(len(runs), len(runs.search("refund")), len(runs.search("invoice")))
    1 1 0
    """
    if isinstance(source, RunCollection):
        return source
    paths, runs = parts_of(source)
    if runs and not paths and all(isinstance(run, Failed) for run in runs):
        raise next(
            run.error for run in runs if isinstance(run, Failed)
        )  # the source itself is wrong, as opposed to a folder with some bad files
    members = Members(paths, runs, None if index is None else as_path(index))
    every = members.refresh(progress)
    failed = [
        Failed(
            None if path is None else str(path),
            NoeticError("invalid_run_file", error, path=None if path is None else str(path)),
        )
        for path, error in [(members.path_of(key), error) for key, error in every if error is not None]
        if error is not None
    ]
    return RunCollection(members, [key for key, error in every if error is None], failed)
