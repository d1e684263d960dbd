"""Learns from reported usage how far a counter is off, for each model and kind of item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final

from noetic_nb._core.atomic_write import read_form, save_form
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items._item import Item, remember_tally, tally_of
from noetic_nb.tokenizers._factors import LEAST_CALLS, Factors, Observed, Tally, learned, whole
from noetic_nb.tokenizers._framing import Framing, counted_text, framing_of, kind_of
from noetic_nb.tokens import KNOWN_ERRORS, Tokenizer, estimate_tokens, known_error, tokenizer_name

MAX_CALLS: Final = 512  # how many of the newest model calls are kept
_FORM: Final = "noetic_nb token calibration 1"


class CalibratedTokenizer:
    """A counter multiplied by learned factors; created by a `TokenCalibration`, and immutable.

    Attributes
    ----------
    name : str
        The base counter, and what was learned: how many calls of which model, or that there are too few.
    known_error : float or None
        As in `Factors`; the error of the base counter while nothing was learned.
    """

    __slots__ = ("base", "calibration", "factors", "framing", "known_error", "model", "name", "seen")

    def __init__(self, calibration: TokenCalibration, model: str, factors: Factors, seen: int) -> None:
        self.calibration = calibration
        self.base = calibration.base
        self.model = model
        self.factors = factors
        self.seen = seen
        self.framing: Framing = getattr(self.base, "framing", None) or framing_of(model)
        if factors.calls:
            self.known_error: float | None = factors.known_error
            what = f"{factors.calls} calls of {model}"
        else:
            self.known_error = KNOWN_ERRORS.get(f"calibrated({tokenizer_name(self.base)})", known_error(self.base))
            what = f"as it is: {seen} of {LEAST_CALLS} calls of {model} seen" if model else "as it is: no call seen"
        self.name = f"calibrated({tokenizer_name(self.base)}, {what})"

    @property
    def recorded(self) -> dict[str, Any]:
        """The parts of the counter, as JSON data; `counter_of` recreates it."""
        return {"base": _base_name(self.base), "model": self.model, "seen": self.seen, **self.factors.as_data()}

    def __call__(self, text: str) -> int:
        """Count the tokens of a text of unknown kind."""
        return _times(self.base(text), self.factors.others)

    def count_content(self, item: Mapping[str, Any]) -> int:
        """Count the text of an item."""
        kind, count = self._counted(item)
        return _times(count, self.factors.of(kind))

    def count_item(self, item: Mapping[str, Any]) -> int:
        """Count an item as billed."""
        kind, count = self._counted(item)
        return _times(count, self.factors.of(kind)) + self.framing.item(kind)

    def count_system(self, text: str) -> int:
        """Count the instructions as billed."""
        return _times(self.base(text), self.factors.of("instructions")) + self.framing.message + self.framing.reply

    def count_tools(self, tools: Iterable[Any]) -> int:
        """Count tool definitions."""
        return _times(self.framing.definitions(tools, self.base), self.factors.of("tools"))

    def tally(self, items: Iterable[Mapping[str, Any]], *, instructions: str = "", tools: Iterable[Any] = ()) -> Tally:
        """Return the parts of a request, counted by the base counter."""
        counts: dict[str, int] = {}
        framing = 0
        for item in items:
            kind, count = self._counted(item)
            counts[kind] = counts.get(kind, 0) + count
            framing += self.framing.item(kind)
        if instructions:
            counts["instructions"] = self.base(instructions)
            framing += self.framing.message + self.framing.reply
        defined = self.framing.definitions(tools, self.base)
        if defined:
            counts["tools"] = defined
        return Tally(counts, framing)

    def _counted(self, item: Mapping[str, Any]) -> tuple[str, int]:
        if type(item) is not Item:
            kind = kind_of(item)
            return kind, self.base(counted_text(item, kind))
        known = tally_of(item, self.base)
        if known is None:
            kind = kind_of(item)
            known = (self.base, kind, self.base(counted_text(item, kind)))
            remember_tally(item, known)
        return known[1], known[2]

    def __repr__(self) -> str:
        return f"<tokenizer {self.name}>"


def _base_name(base: Tokenizer) -> str:
    return "estimate" if base is estimate_tokens else tokenizer_name(base)


def _base_of(name: Any, given: Tokenizer | None = None) -> Tokenizer:
    """Return the counter with a name; raises `ValueError` if it is the caller's own function and was not given."""
    if given is not None:
        if _base_name(given) != name:
            raise ValueError(f"it was learned on top of {name!r}, and not of {_base_name(given)!r}")
        return given
    if name == "estimate":
        return estimate_tokens
    # Imported late: most agents use the estimate.
    from noetic_nb.tokenizers._encoding_tokenizer import OFFLINE, offline_tokenizer
    from noetic_nb.tokenizers._from_files import ENCODINGS, encoding_tokenizer

    if name == OFFLINE:
        return offline_tokenizer()
    if name not in ENCODINGS:
        raise ValueError(f"it was learned on top of {name!r}: pass that as base=")
    return encoding_tokenizer(name)


def counter_of(recorded: Mapping[str, Any]) -> CalibratedTokenizer:
    """Recreate a counter from `CalibratedTokenizer.recorded`; raises as `get` does, or for data of another form."""
    calibration = TokenCalibration(_base_of(recorded["base"]))
    factors, seen = Factors.from_data(recorded), whole(recorded["seen"])
    return calibration.resume(str(recorded["model"]), factors, seen)


def _times(count: int, factor: float) -> int:
    """Multiply a count; a positive count stays positive."""
    return max(1, int(count * factor + 0.5)) if count else 0


class TokenCalibration:
    """Learned corrections for a counter, from the usage that models report.

    Pass it to a harness, ``tokenizer=calibration``, which uses it for planning and keeps learning; harnesses may share
    one. Factors are learned after eight calls of a model, again after sixteen, and so on, so that a conversation is
    recounted only a few times. The same calls in the same order always give the same factors.

    Parameters
    ----------
    base : callable, optional
        The base counter: the default estimate, or a result of `get`.

    Examples
    --------
    >>> calibration = TokenCalibration()
    >>> for size in range(1, 9):
    ...     _ = calibration.observe("m", Tally({"user": 100 * size}, 4), 200 * size + 4)
    >>> calibration.tokenizer("m").name, calibration.tokenizer("m")("x" * 400)
    ('calibrated(noetic_nb.tokens.estimate_tokens, 8 calls of m)', 200)
    """

    def __init__(self, base: Tokenizer = estimate_tokens) -> None:
        self.base = base
        self._observed: dict[str, list[Observed]] = {}
        self._seen: dict[str, int] = {}
        self._made: dict[str, CalibratedTokenizer] = {}

    def observe(
        self, model: str, tally: Tally, reported: int, *, before: tuple[Tally, int] | None = None
    ) -> Tally | None:
        """Learn from one call; returns its tally if it is usable for learning.

        Parameters
        ----------
        model : str
            The model that answered.
        tally : Tally
            The tally of its request.
        reported : int
            Its billed input tokens.
        before : pair of Tally and int, optional
            The previous call of the same conversation, so that the common part is not learned from twice.
        """
        if reported <= 0 or (before is not None and reported < before[1] and tally.has_all_of(before[0])):
            return None
        kept = self._observed.setdefault(model, [])
        kept.append(Observed(tally, reported, before))
        del kept[:-MAX_CALLS]
        seen = self._seen[model] = self._seen.get(model, 0) + 1
        if seen < LEAST_CALLS:
            self._made.pop(model, None)
        elif seen & (seen - 1) == 0:
            self._made[model] = CalibratedTokenizer(self, model, learned(kept), seen)
        return tally

    def calls(self, model: str) -> int:
        """Return the number of model calls used for learning."""
        return self._seen.get(model, 0)

    def learn(self) -> None:
        """Learn from all calls now, whatever their number."""
        for model, kept in self._observed.items():
            self._made[model] = CalibratedTokenizer(self, model, learned(kept), self._seen[model])

    def tokenizer(self, model: str = "") -> CalibratedTokenizer:
        """Return the current counter of a model; the same object until more is learned."""
        made = self._made.get(model)
        if made is None:
            made = self._made[model] = CalibratedTokenizer(self, model, Factors(), self._seen.get(model, 0))
        return made

    def resume(self, model: str, factors: Factors, seen: int) -> CalibratedTokenizer:
        """Continue from factors learned elsewhere for a model."""
        self._seen[model] = seen
        made = self._made[model] = CalibratedTokenizer(self, model, factors, seen)
        return made

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the learned factors, and the counts of calls behind them, as JSON; it contains no text of requests.

        Parameters
        ----------
        path : path-like
            The file; an existing one is replaced.

        Raises
        ------
        NoeticConfigError
            ``CANNOT_WRITE``; an existing file stays unchanged.
        """
        models = {
            model: {
                "seen": seen,
                **self.factors(model).as_data(),
                "observed": [_as_row(one) for one in self._observed.get(model, ())],
            }
            for model, seen in sorted(self._seen.items())
        }
        return save_form(path, _FORM, {"base": _base_name(self.base), "models": models})

    @classmethod
    def load(cls, path: str | PathLike[str], *, base: Tokenizer | None = None) -> TokenCalibration:
        """Read a calibration; it continues learning as the saved one would have.

        Parameters
        ----------
        path : path-like
            A file written by `save`.
        base : callable, optional
            The base counter, if it is your own function; encodings and the default estimate are found by name.

        Raises
        ------
        NoeticConfigError
            ``INVALID_CALIBRATION`` for an invalid file, or one learned with another base counter; ``MISSING_EXTRA`` and
            ``MISSING_RANKS`` as in `get`.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> calibration = TokenCalibration()
        >>> for size in range(1, 9):
        ...     _ = calibration.observe("m", Tally({"user": 100 * size}, 4), 200 * size + 4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = TokenCalibration.load(calibration.save(pathlib.Path(folder, "counts.json")))
        >>> again.factors("m") == calibration.factors("m")
        True
        """
        try:
            data = read_form(path, _FORM)
            calibration = cls(_base_of(data["base"], base))
            for model, known in data["models"].items():
                calibration._observed[model] = [_from_row(row) for row in known["observed"]][-MAX_CALLS:]
                calibration.resume(model, Factors.from_data(known), whole(known["seen"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
            what = f"This is no saved calibration of a tokenizer: {type(exc).__name__}: {exc}"
            hint = "Load a file that TokenCalibration.save(path) wrote."
            raise NoeticConfigError("INVALID_CALIBRATION", what, given=str(path), hint=hint) from exc
        return calibration

    @property
    def models(self) -> tuple[str, ...]:
        """The models with observed calls."""
        return tuple(self._observed)

    def factors(self, model: str) -> Factors:
        """Return the learned factors of a model."""
        return self.tokenizer(model).factors

    def __repr__(self) -> str:
        seen = ", ".join(f"{model}: {calls}" for model, calls in self._seen.items())
        return f"<TokenCalibration of {tokenizer_name(self.base)}; calls seen: {seen or 'none'}>"


def _as_row(one: Observed) -> list[Any]:
    before = None if one.before is None else [dict(one.before[0].counts), one.before[0].framing, one.before[1]]
    return [dict(one.tally.counts), one.tally.framing, one.reported, before]


def _from_row(row: Any) -> Observed:
    counts, framing, reported, before = row
    past = None if before is None else (_tally(*before[:2]), whole(before[2]))
    return Observed(_tally(counts, framing), whole(reported), past)


def _tally(counts: Any, framing: Any) -> Tally:
    return Tally({str(kind): whole(tokens) for kind, tokens in counts.items()}, whole(framing))
