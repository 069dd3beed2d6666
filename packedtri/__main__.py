"""The command line: ``python -m packedtri demo | bench | info``."""

from __future__ import annotations

import sys

# The packages of the extra `cli`, by the names they are imported under.
_EXTRA = {"typer", "click", "rich", "matplotlib", "numpy", "sklearn"}


def main() -> None:
    """Run the command line, or say which extra it needs."""
    try:
        from packedtri._cli.app import app
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA:
            raise
        sys.exit(
            f"packedtri: the command line needs {missing}, which is not installed. "
            "Install the extra, in the source tree: pip install --no-build-isolation '.[cli]', "
            "or where the package is installed already: pip install 'packedtri[cli]'"
        )
    app(prog_name="packedtri")


if __name__ == "__main__":
    main()
