"""Tells a text about distributed training, such as a manual or a read-me, from what a job printed.

Such a text quotes every line there is, so none of them is evidence of anything.
"""

from __future__ import annotations

import re

FEWEST_LINES = 12
"""Lines, not counting empty ones, from which a text can be a document; people quote fewer in a report."""
PROSE = 0.4
"""The share of lines of sentences from which a text is one."""
ASKED = 0.03
"""The share of lines in the first person above which somebody tells what he did."""
MOST_LINES = 200

_WORD = re.compile(r"[A-Za-z][a-z'’-]*[,;:.)]*$")
_JOINING = re.compile(
    r"(?:a|an|and|are|as|at|be|but|by|can|do|for|from|has|have|if|in|into|is|it|its|no|not|of|on|one|only|or|so|such"
    r"|than|that|the|their|them|then|there|these|they|this|to|was|what|when|where|which|while|who|will|with|without)$"
)
_FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|I'd|my|me|we're|we've)\b")
_OF_A_PROGRAM = re.compile(
    r"^[^\w#*|>-]*(?:\S*\d\d:\d\d|(?:WARN(?:ING)?|ERROR|INFO|DEBUG|FATAL|CRITICAL|Traceback)\b)|^\[|\d\d:\d\d:\d\d"
)
_HEADING = re.compile(r"^(?:#{1,4} \S|\|.+\|$|```)")


def looks_like_document(text: str) -> bool:
    """Whether most of this is sentences that nobody says of himself; `text` is a file or its beginning."""
    lines = list(dict.fromkeys(line.strip() for line in text.splitlines()[:MOST_LINES]))
    own = sum(map(bool, map(_FIRST_PERSON.search, lines)))
    if len(lines) < FEWEST_LINES or own > max(1, ASKED * len(lines)):
        return False
    marked = sum(map(bool, map(_HEADING.match, lines)))
    return sum(map(_is_prose, lines)) + marked >= PROSE * len(lines)


def _is_prose(line: str) -> bool:
    """Whether a line is (part of) a sentence: mostly words, and several of those that join others."""
    if _OF_A_PROGRAM.search(line):
        return False
    words = line.strip(" -*>|#").split()
    plain = [word for word in words if _WORD.match(word)]
    joining = sum(bool(_JOINING.match(word.strip(",;:.").lower())) for word in plain)
    return len(words) >= 7 and len(plain) >= 0.6 * len(words) and joining >= 0.18 * len(words)
