"""The worker process, run as a file: reports that it is ready, then reads an expression and sets of values, and answers each."""

from __future__ import annotations

import json
import sys

# An expression can build nested lists; it must not exhaust the machine's memory.
MAX_BYTES = 1_000_000_000


def limit_memory() -> None:
    """Limit the memory of this process if the system supports it."""
    try:
        import resource
    except ImportError:  # not available on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))


def written(value: object) -> str:
    """Return a value as the text by which its origins are looked up."""
    return json.dumps(value, sort_keys=True)


def main() -> None:
    """Write a line of JSON for each line of JSON."""
    import cel

    limit_memory()
    output = sys.stdout
    output.write("\n")  # ready
    output.flush()
    program = None
    for line in sys.stdin:
        given = json.loads(line)
        try:
            if program is None:
                program = cel.compile(given["compile"])
                reply: dict[str, bool | str] = {"compiled": True}
            else:
                context = cel.Context(given["values"])
                known = {written(value): texts for value, texts in given.get("origins", ())}
                # Values outside the arguments are unknown here: the lookup fails, and so does the rule.
                context.add_function("origin", lambda value, known=known: known[written(value)][0])
                context.add_function("origins", lambda value, known=known: known[written(value)][1:])
                value = program.execute(context)
                reply = {"value": value if isinstance(value, bool) else type(value).__name__}
        except Exception as exc:
            reply = {"error": f"{type(exc).__name__}: {exc}"[:2_000]}
        output.write(json.dumps(reply) + "\n")
        output.flush()


if __name__ == "__main__":
    main()
