"""`check` compares one answer with the cases of its exercise; `grade` runs a class's notebooks and makes a table.

Answers are looked up by name after the notebook has run and are checked again, so a saved output or the notebook's own
`check` has no effect. A notebook is still a program and runs with the grader's rights: grade untrusted work in a
container.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from noetic_nb._core.arguments import ArgumentError
from noetic_nb._core.long_work import Progress, Work
from noetic_nb._core.optional_packages import optional_package
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lessons._attack_exercises import ATTACKS
from noetic_nb.lessons._exercise import Exercise, Verdict
from noetic_nb.lessons._extending_exercises import EXTENDING
from noetic_nb.lessons._measuring_exercises import MEASURING
from noetic_nb.lessons._memory_exercises import MEMORY
from noetic_nb.lessons._regulator_exercises import REGULATOR
from noetic_nb.lessons._steering_exercises import STEERING
from noetic_nb.lessons._step_exercises import STEPS
from noetic_nb.lessons._token_exercises import TOKENS
from noetic_nb.lessons._watching_exercises import WATCHING
from noetic_nb.lessons._what_if_exercises import WHAT_IF
from noetic_nb.redact import redact_text
from noetic_nb.sync import awaited, run_sync

if TYPE_CHECKING:
    import pandas

EXERCISES: Final[dict[str, Exercise]] = {
    each.id: each
    for each in (*MEMORY, *TOKENS, *STEERING, *REGULATOR, *STEPS, *WHAT_IF, *WATCHING, *EXTENDING, *MEASURING, *ATTACKS)
}
"""Every exercise, by its id."""

_tries: Final[Counter[str]] = Counter()


async def _examined(exercise: Exercise, answer: Any) -> str | None:
    try:
        why: str | None = await awaited(exercise.examine(answer))
    except Exception as error:  # an answer may raise anything, which is then its fault
        if isinstance(error, TypeError) and not callable(answer):
            how = f"Pass the function itself: check({exercise.id!r}, {exercise.answer})."
            return f"Your answer is a {type(answer).__name__}, which cannot be called. {how}"
        return f"Your answer raised {type(error).__name__}: {redact_text(str(error))[:300]}"
    return why


def examined(exercise: Exercise, answer: Any) -> str | None:
    """Return the fault of an answer, or None if it is right; does not count as an attempt."""
    return run_sync(_examined(exercise, answer))


def check(exercise: str, answer: Any) -> Verdict:
    """Tell whether an answer is right, or else its fault; each further attempt gives one more hint.

    Parameters
    ----------
    exercise : str
        The id of an exercise, as in the lesson.
    answer : object
        The answer to the exercise, usually a function.

    Returns
    -------
    Verdict
        True if the answer is right. It reports an error of the answer instead of raising it.

    Raises
    ------
    ArgumentError
        If the exercise does not exist.

    Examples
    --------
    >>> check("1.1", lambda sizes, room: [])
    1.1: not yet. Items of 40, 10, 30, 20 tokens and room for 60: [1, 2, 3] are sent, your
        answer is [].
    """
    found = EXERCISES.get(exercise)
    if found is None:
        if str(exercise) in EXERCISES:
            raise ArgumentError(
                "The name of an exercise must be text",
                given=exercise,
                hint=f"Write check({str(exercise)!r}, ...), in quotes.",
            )
        raise ArgumentError("There is no such exercise", given=exercise, hint=f"There are {', '.join(EXERCISES)}.")
    why = examined(found, answer)
    if why is None:
        return Verdict(exercise, True)
    _tries[exercise] += 1
    return Verdict(exercise, False, why, found.hints[: _tries[exercise] - 1])


TIMEOUT_S: Final = 120
"""Per cell. A whole lesson takes less than a minute; a slower cell hangs."""

_ASKED: Final = re.compile(r"\bcheck\(\s*[\"'](\d+\.\d+)[\"']")
_MIME: Final = "application/json"
_NO_PYTHON: Final = frozenset({"SyntaxError", "IndentationError", "TabError"})


def graded(answers: Mapping[str, Any], exercises: Sequence[str]) -> dict[str, str]:
    """Return ``"right"``, ``"not yet"`` or ``"missing"`` for each exercise, from the names of a notebook."""
    return {
        each: "missing"
        if EXERCISES[each].answer not in answers
        else "right"
        if examined(EXERCISES[each], answers[EXERCISES[each].answer]) is None
        else "not yet"
        for each in exercises
    }


def grade(folder: str | Path, *, timeout_s: float = TIMEOUT_S, progress: Progress = True) -> pandas.DataFrame:
    """Run every notebook of a folder and check its answers.

    Parameters
    ----------
    folder : str or path
        With one notebook (``.ipynb``) per submission. No file there is changed.
    timeout_s : float, seconds
        Per cell; a slower cell is interrupted, and the notebook continues.
    progress : bool or callable
        Called with the numbers of graded and of all notebooks; by default a line of text in a terminal or notebook.
        False shows nothing.

    Returns
    -------
    pandas.DataFrame
        A row per notebook, by the name of its file: a column for each exercise in any of them, with ``"right"``, ``"not
        yet"`` or ``"missing"``; ``right``, the number of right answers; and ``error``, for a notebook that cannot be
        read or run to its end, or has a cell that is not Python (otherwise empty). Cells that raise do not end a
        notebook. ``attrs["stopped"]`` is the reason why rows are missing, or None.

    Raises
    ------
    NoeticConfigError
        ``NO_SUBMISSIONS`` for a folder without notebooks, ``MISSING_PACKAGE`` if notebooks cannot be run.

    Warns
    -----
    Interrupted
        If it is interrupted: the table has the notebooks graded so far.
    """
    import pandas

    with optional_package("Notebooks cannot be run here.", "pip install 'noetic_nb[lab]'", given="nbclient"):
        import nbclient
        import nbformat
    del nbclient, nbformat
    paths = sorted(Path(folder).glob("*.ipynb"))
    if not paths:
        hint = "Put the .ipynb files right into the folder."
        raise NoeticConfigError("NO_SUBMISSIONS", "There is no notebook.", given=str(folder), hint=hint)
    asked = {path: asked_in(path) for path in paths}
    exercises = [each for each in EXERCISES if any(each in found for found in asked.values())]
    rows = []
    with Work("grade", "notebooks", progress, of=len(paths)) as work:
        for path in work.each(paths):
            verdicts, error = _answers(path, exercises, timeout_s)
            rows.append(
                {"submission": path.stem, **verdicts, "right": list(verdicts.values()).count("right"), "error": error}
            )
    table = pandas.DataFrame(rows).set_index("submission")
    table.attrs["stopped"] = work.cut
    return table


def asked_in(path: Path) -> set[str]:
    """Return the ids of the exercises in a notebook."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return set()
    return {each for each in _ASKED.findall(text.replace('\\"', '"')) if each in EXERCISES}


def _answers(path: Path, exercises: Sequence[str], timeout_s: float) -> tuple[dict[str, str], str]:
    """Run one notebook and one more cell that grades it."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import DeadKernelError

    missing = dict.fromkeys(exercises, "missing")
    try:
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        nbformat.validate(notebook)
    except Exception as error:  # the submitted file may be anything
        return missing, f"not a notebook: {type(error).__name__}"
    last = nbformat.v4.new_code_cell(  # type: ignore[no-untyped-call]
        "from noetic_nb.lessons._grading import graded as _graded\nfrom IPython.display import display as _display\n"
        f"_display({{{_MIME!r}: _graded(globals(), {list(exercises)!r})}}, raw=True)"
    )
    wrong = ""
    with tempfile.TemporaryDirectory() as place:
        client = NotebookClient(
            notebook, timeout=int(timeout_s), kernel_name="python3", allow_errors=True, interrupt_on_timeout=True,
            store_widget_state=False, resources={"metadata": {"path": place}},
        )  # fmt: skip
        try:
            # It would print security warnings and interruptions once per notebook.
            with client.setup_kernel(stderr=subprocess.DEVNULL):
                for index, cell in enumerate(notebook.cells):
                    if cell.cell_type == "code":
                        client.execute_cell(cell, index)
                        raised = {output.get("ename"): output.get("evalue") for output in cell.outputs}
                        if "KeyboardInterrupt" in raised:
                            wrong = f"a cell took longer than {timeout_s:g} s"
                        for kind in _NO_PYTHON & raised.keys():  # the reason why the answer in that cell is missing
                            what = re.sub(r"\(\d+\.py, (line \d+)\)", r"(\1)", str(raised[kind]))
                            wrong = wrong or f"cell {index + 1} is not valid Python: {what}"
                notebook.cells.append(last)
                client.timeout = TIMEOUT_S
                client.execute_cell(last, len(notebook.cells) - 1)
        except DeadKernelError:
            wrong = "the kernel died"
    for output in last.outputs:
        found = output.get("data", {}).get(_MIME)
        if found is not None:
            found = json.loads(found) if isinstance(found, str) else found
            return {each: str(found.get(each, "missing")) for each in exercises}, wrong
    return missing, wrong or "the answers could not be checked"
