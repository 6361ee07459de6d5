"""The installed package as one zip file, for clusters whose Python does not have it.

Lives here: ``package_zip``, and a command around it:

    spark-submit --py-files "$(python -m pocketmq.pipeline.packing pocketmq.zip)" job.py
"""

import sys
import zipfile
from pathlib import Path
from typing import Final

import pocketmq

DATE: Final = (1980, 1, 1, 0, 0, 0)
"""Of every file in the zip, so that the same code gives the same bytes."""
SUFFIXES: Final = frozenset({".py", ".typed"})


def package_zip(path: str | Path) -> str:
    """Write ``pocketmq`` as it is imported here into a zip file; return its absolute path.

    For ``SparkContext.addPyFile`` and ``--py-files``. Replaces a file at ``path``.
    """
    target = Path(path).resolve()
    root = Path(pocketmq.__path__[0])
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(_files(root, Path())):
            entry = zipfile.ZipInfo(f"pocketmq/{name.as_posix()}", DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, (root / name).read_bytes())
    return str(target)


def _files(root: Path, below: Path) -> list[Path]:
    """Return the files of the package, relative to it; follows links to folders (of an editable installation)."""
    found: list[Path] = []
    for each in (root / below).iterdir():
        if each.is_dir() and each.name != "__pycache__":
            found += _files(root, below / each.name)
        elif each.suffix in SUFFIXES:
            found.append(below / each.name)
    return found


def main() -> None:
    """Write the zip named by the first argument, ``pocketmq.zip`` without one, and print its path."""
    print(package_zip(sys.argv[1] if len(sys.argv) > 1 else "pocketmq.zip"))


if __name__ == "__main__":
    main()
