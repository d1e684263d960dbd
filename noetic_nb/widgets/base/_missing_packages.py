"""In the browser, replaces an ImportError by one sentence naming the missing package, and continues with the next cell.

The server-less site runs this file at kernel start (``PYTHONSTARTUP``). A cell that needs pandas, a picture or a CEL
condition then prints a sentence instead of a traceback and does not fail, so "Run All" continues. Names that the cell
would have assigned are deleted, so that later cells fail clearly instead of using stale values. All other errors are
shown as usual.
"""

from __future__ import annotations

import ast
from typing import Any, Final

NEEDS: Final = {
    "pandas": "Tables need pandas",
    "numpy": "Statistics need numpy",
    "matplotlib": "Pictures need matplotlib",
    "sklearn": "Learned baselines need scikit-learn",
    "joblib": "Sweeps need joblib",
    "yaml": "Rule files in YAML need pyyaml",
    "cel": "Conditions in CEL need common-expression-language",
    "tiktoken": "Exact tokenizers need tiktoken",
    "jsonschema": "JSON Schemas need jsonschema",
    "openai": "Calls of a real model need openai",
    "nest_asyncio": "nested='patch' needs nest-asyncio",
    "nbclient": "Running other notebooks needs nbclient",
}
"""Packages that the package index has no browser build of, by import name."""

_CODES: Final = frozenset({"MISSING_PACKAGE", "MISSING_EXTRA", "MISSING_RANKS"})
_OWN_SCOPE: Final = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def bound_names(code: str) -> tuple[set[str], set[str]]:
    r"""Return the names that a cell assigns, and those that it defines or imports.

    Examples
    --------
    >>> bound_names("import re\nbook = make()")
    ({'book'}, {'re'})
    """
    try:
        todo: list[ast.AST] = [ast.parse(code)]
    except SyntaxError:
        return set(), set()
    assigned, defined = set[str](), set[str]()
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defined.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            assigned.add(node.id)
        elif not isinstance(node, _OWN_SCOPE):
            todo.extend(ast.iter_child_nodes(node))
    return assigned, defined


class GoOnWithout:
    """Prints a sentence for a missing package; an IPython shell calls it with every error.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell
        The shell; `install` registers with it.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._gone: dict[str, str] = {}

    def install(self) -> None:
        """Register for every future error."""

        def handle(
            _: Any, kind: type[BaseException], error: BaseException, trace: Any, tb_offset: int | None = None
        ) -> None:
            self.handle(kind, error, trace, tb_offset)

        self._shell.set_custom_exc((Exception,), handle)

    def sentence_for(self, error: BaseException) -> str | None:
        """Return the sentence to print instead of a traceback, None for an error that is shown as usual."""
        if isinstance(error, NameError) and error.name in self._gone:
            return f"`{error.name}` was not made here. {self._gone[error.name]}"
        return self._cause_of(error)

    def _cause_of(self, error: BaseException) -> str | None:
        if isinstance(error, NameError):
            return self._gone.get(error.name or "")
        seen: set[int] = set()
        found: BaseException | None = error
        while found is not None and id(found) not in seen:
            seen.add(id(found))
            if isinstance(found, ModuleNotFoundError) and (needs := NEEDS.get((found.name or "").partition(".")[0])):
                return f"{needs}, which a page in the browser cannot carry."
            if getattr(found, "code", None) in _CODES:
                return f"{getattr(found, 'what', found)} A page in the browser cannot carry it."
            found = found.__cause__ or found.__context__
        return None

    def handle(self, kind: type[BaseException], error: BaseException, trace: Any, tb_offset: int | None) -> None:
        """Print the sentence, or show the error as usual."""
        sentence = self.sentence_for(error)
        if sentence is None:
            self._shell.set_custom_exc((), None)
            try:
                self._shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
            finally:
                self.install()
            return
        code = self._shell.input_transformer_manager.transform_cell(self._shell.history_manager.input_hist_raw[-1])
        assigned, defined = bound_names(code)
        names = self._shell.user_ns
        for name in assigned:
            names.pop(name, None)
        cause = self._cause_of(error) or sentence
        self._gone.update({name: cause for name in assigned | defined if name not in names})
        print(f"{sentence} The next cells go on; `make lab` runs this one too.")


if __name__ == "__main__":
    from IPython import get_ipython

    GoOnWithout(get_ipython()).install()
