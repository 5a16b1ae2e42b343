"""Executes the notebooks of examples/ in place, in one kernel, and leaves nothing of this machine in them.

python scripts/notebooks.py            # all; writes them
python scripts/notebooks.py FILE ...   # some
"""

from __future__ import annotations

import copy
import re
import sys
from pathlib import Path
from typing import Any

# a namespace, a folder and an empty state; charts as data, without a script that a page would load from elsewhere
FRESH = """%reset -f
import os, sys, tempfile
import altair
kind = "application/vnd.vegalite.v6+json"
altair.renderers.register("kept", lambda spec, **_: {kind: spec, "text/plain": "a chart"})
altair.renderers.enable("kept")
os.chdir(tempfile.mkdtemp(prefix="sfumato-example-"))
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
del os, sys, tempfile, altair"""
EXAMPLES = Path(__file__).parents[1] / "examples"


def notebook_paths() -> list[Path]:
    """One for every kind of user, and then the course, in order."""
    return [*sorted(EXAMPLES.glob("*.ipynb")), *sorted((EXAMPLES / "course").glob("*.ipynb"))]


def together(notebooks: list[Any]) -> Any:
    """Their cells one after the other, a fresh namespace for each: one kernel is started instead of many."""
    import nbformat

    whole = nbformat.v4.new_notebook()
    for notebook in notebooks:
        whole.cells.append(nbformat.v4.new_code_cell(FRESH))
        whole.cells += copy.deepcopy(notebook.cells)
    return whole


def executed(notebooks: list[Any], **options: Any) -> Any:
    """All cells of the notebooks, with what they gave. Raises CellExecutionError where one fails."""
    from nbclient import NotebookClient

    whole = together(notebooks)
    NotebookClient(whole, timeout=600, kernel_name="python3", **options).execute()
    return whole


def main() -> None:
    import nbformat

    paths = [Path(p) for p in sys.argv[1:]] or notebook_paths()
    notebooks = [nbformat.read(p, as_version=4) for p in paths]
    done = iter(executed(notebooks).cells)
    for path, notebook in zip(paths, notebooks, strict=True):
        next(done)  # the cell that cleared the namespace
        for i, cell in enumerate(notebook.cells):
            new = next(done)
            cell["id"] = f"{path.stem}-{i}"
            cell["metadata"] = {}
            if cell["cell_type"] == "code":
                cell["execution_count"] = None
                # lines that moved while something took long, which hangs on the machine
                cell["outputs"] = [o for o in new["outputs"] if o.get("data", {}).get("text/html") != ""]
                for output in cell["outputs"]:
                    output["metadata"] = {}
                    output.pop("execution_count", None)
                    if output["output_type"] == "execute_result":
                        output["execution_count"] = None
        notebook["metadata"] = {
            "language_info": {"name": "python"},
            "kernelspec": {"name": "python3", "display_name": "Python 3"},
        }
        text = re.sub(r"/[\w/.-]*sfumato-example-\w+/", "", nbformat.writes(notebook))
        path.write_text(text + "\n", encoding="utf-8", newline="\n")
        print(path.name)


if __name__ == "__main__":
    main()
