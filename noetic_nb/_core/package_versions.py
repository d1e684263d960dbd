"""Which version of a package produced something: kept with runs and results."""

from functools import cache


@cache  # for good: what has been imported stays as it is while the process lives
def version_of(package: str) -> str:
    """Return the version of an installed package; ``"source"`` of one that is used from a tree that was never installed."""
    from importlib.metadata import PackageNotFoundError, version  # as slow to load as all the rest

    try:
        return version(package)
    except PackageNotFoundError:
        return "source"
