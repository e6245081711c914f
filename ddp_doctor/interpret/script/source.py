"""A script as text and tree, with the lines that can be quoted."""

from __future__ import annotations

import ast
import io
import posixpath
import warnings

from ddp_doctor.facts.script import Place


class Module:
    """One parsed file of the user's."""

    def __init__(self, path: str, text: str, name: str, tree: ast.Module, relative: str) -> None:
        self.path = path
        self.relative = relative
        """The path a diff names: `patch` refuses absolute ones, so there it is the path from the script's folder."""
        self.text = text
        self.name = name
        self.tree = tree
        self.raw_lines = list(io.StringIO(text, newline=""))  # as Python counts lines, each with its end
        self.lines = [line.rstrip("\r\n") for line in self.raw_lines]
        self.newline = "\r\n" if self.raw_lines and self.raw_lines[0].endswith("\r\n") else "\n"
        self._parents: dict[ast.AST, ast.AST] | None = None

    @property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """Each node's parent."""
        if self._parents is None:
            self._parents = {child: parent for parent in ast.walk(self.tree) for child in ast.iter_child_nodes(parent)}
        return self._parents

    def place(self, node: ast.AST) -> Place:
        """The first line of a node, quoted."""
        line: int = getattr(node, "lineno", 1)
        code = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return Place(path=self.path, line=line, code=code[:160])

    def segment(self, node: ast.AST) -> str:
        """The node's own text."""
        return ast.get_source_segment(self.text, node) or ""


def parse(path: str, text: str, name: str, relative: str) -> Module:
    """The parsed file; raises SyntaxError or ValueError with the reason.

    `relative` is its path from the script's folder, which a diff names where `path` is absolute.
    """
    if text.startswith("\ufeff"):
        text = text[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the user's strings are not ours to report
        try:
            tree = ast.parse(text)
        except RecursionError as error:
            raise ValueError("it is nested too deeply to be read") from error
        except MemoryError as error:
            raise ValueError("it is nested too deeply to be read") from error
    return Module(path, text, name, tree, relative if posixpath.isabs(path) else path)
