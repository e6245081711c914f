"""What a meeting before init shows of DDP116: processes that came with the same rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.facts.job import numbers
from ddp_doctor.model import Facts, Fix
from ddp_doctor_checks.disagreement import confidence, met


def from_meeting(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `DuplicateRank.finding`: one set for all ranks that are there more than once."""
    places: dict[int, list[Attendee]] = defaultdict(list)
    for each in met(facts):
        if each.rank is not None and not each.gone:
            places[each.rank].append(each)
    twice = {rank: same for rank, same in places.items() if len({each.subject.process for each in same}) > 1}
    if not twice:
        return
    attendance = facts.first(Attendance)
    involved = [each for same in twice.values() for each in same]
    first, same = next(iter(twice.items()))
    missing = attendance.missing if attendance else ()
    yield {
        "summary": f"{len(same)} processes are rank {first} of one job: "
        + " and ".join(f"PID {each.subject.pid}" for each in same[:4])
        + (f"; so are {len(twice) - 1} more ranks" if len(twice) > 1 else "")
        + (f"; nobody is {numbers(missing)}" if missing else ""),
        "because": "they meet at one store and overwrite each other's keys, and the rank that nobody took is waited for "
        "until the timeout",
        "evidence": [each.evidence() for each in involved[:8]],
        "fixes": [
            Fix(
                title="let a launcher give each process its RANK, and take out what sets it besides",
                commands=(
                    f"torchrun --standalone --nproc-per-node={same[0].world_size or 2} {same[0].script or 'train.py'}",
                ),
                needs="job restart",
            ),
            Fix(
                title="or see who the second one is: another job needs a port of its own",
                commands=tuple(f"ps -o pid,lstart,cmd -p {each.subject.pid}" for each in same[:3]),
                needs="nothing",
            ),
        ],
        "confidence": confidence(facts, involved),
        "ranks": sorted(twice),
    }
