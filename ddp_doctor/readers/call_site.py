"""The lines around a call in a script: the conditions it stands under, and the loops it is in or behind."""

from __future__ import annotations

import ast
import re

from ddp_doctor.facts.job import CallSite

MOST_CHARACTERS = 120
CALL = re.compile(r"(\w+)\(")
ON_RANK = re.compile(r"\s*(?:if|elif)\b.*(?:rank|is_main|main_process)", re.IGNORECASE)


def read_call_site(text: str, file: str, line: int) -> CallSite | None:
    """What stands around one line; None where the text cannot be parsed or has no such line."""
    lines = text.splitlines()
    if not 0 < line <= len(lines):
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    conditions: list[str] = []
    loops: list[str] = []
    around: list[int] = []
    behind: list[int] = []
    node: ast.AST = tree
    while True:
        inner = None
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, (ast.stmt, ast.ExceptHandler)):
                    continue
                last = child.end_lineno or child.lineno
                if child.lineno <= line <= last:
                    inner = (child, field)
                elif isinstance(child, (ast.For, ast.While, ast.AsyncFor)) and last < line:
                    behind.append(child.lineno)
        if isinstance(node, ast.If) and inner is not None:
            test = _short(ast.unparse(node.test))
            conditions.append(f"if {test}:" if inner[1] == "body" else f"if not ({test}):")
        if isinstance(node, (ast.For, ast.While, ast.AsyncFor)) and inner is not None:
            loops.append(_short(lines[node.lineno - 1].strip()))
            around.append(node.lineno)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # what stands around a definition does not stand around a call in it
            conditions, loops, around = [], [], []
            behind = [at for at in behind if at >= node.lineno]
        if inner is None:
            break
        node = inner[0]
    return CallSite(
        source=f"{file}:{line}",
        file=file,
        line=line,
        conditions=tuple(reversed(conditions)),
        loops=tuple(reversed(loops)),
        code=_short(lines[line - 1].strip()),
        paired=_has_a_pair(lines, line),
        after_loops=tuple(behind),
        loop_lines=tuple(around),
    )


def _has_a_pair(lines: list[str], line: int) -> bool:
    """`if rank != 0: barrier()` before, and `if rank == 0: barrier()` after what one rank does first."""
    called = CALL.findall(lines[line - 1])
    if not called:
        return False
    same = re.compile(rf"\b{re.escape(called[-1])}\(")
    return any(
        same.search(text) and (ON_RANK.match(text) or ON_RANK.match(lines[place - 1] if place else ""))
        for place, text in enumerate(lines)
        if place != line - 1
    )


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 3] + "..."
