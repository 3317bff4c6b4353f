"""Print what an extra of pyproject.toml needs, one requirement a line: `requirements.py pyproject.toml denoiser`.

Without an extra: what the package itself needs. Extras that name extras of the same project are followed. So an image
gets its dependencies, in a layer of their own, before it gets any code.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def requirements(project: dict[str, Any], extra: str | None) -> Iterator[str]:
    """The requirements of `[project]`. Raises KeyError for an extra that it does not have."""
    if extra is None:
        yield from project["dependencies"]
        return
    own = re.compile(re.escape(project["name"]) + r"\[([^]]+)\]")
    for requirement in project["optional-dependencies"][extra]:
        if named := own.fullmatch(requirement):
            for part in named[1].split(","):
                yield from requirements(project, part.strip())
        else:
            yield requirement


def main() -> None:
    """The whole program."""
    project = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
    print("\n".join(requirements(project, sys.argv[2] if sys.argv[2:] else None)))


if __name__ == "__main__":
    main()
