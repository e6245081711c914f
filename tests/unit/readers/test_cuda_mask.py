from __future__ import annotations

import pytest

from ddp_doctor.readers.cuda_mask import read_mask

UUIDS = ("GPU-aa00", "GPU-ab11")


@pytest.mark.parametrize(
    ("mask", "seen", "fault"),
    [
        ("0,1", 2, ""),
        (" 1, 0 ", 2, ""),
        ("0,1,", 2, ""),
        ("1gpu", 1, ""),
        ("GPU-aa,GPU-ab", 2, ""),
        ("0,,7", 1, "empty"),
        ("0,-1,1", 1, "negative"),
        ("cuda:0", 0, "unreadable"),
        ("all", 0, "unreadable"),
        ("0,GPU-aa00", 1, "mixed"),
        ("0,0", 0, "duplicate"),
        ("0,1,00", 0, "duplicate"),
        ("GPU-aa,GPU-aa00", 0, "duplicate"),
        ("0,9,0", 1, "out-of-range"),
        ("GPU-a", 0, "unknown"),
        ("GPU-ff", 0, "unknown"),
    ],
)
def test_cuda_reads_up_to_the_first_entry_it_does_not_like(mask: str, seen: int, fault: str) -> None:
    reading = read_mask(mask, count=2, uuids=UUIDS)
    assert (len(reading.seen), reading.fault) == (seen, fault)


@pytest.mark.parametrize("mask", ["", "-1", "NoDevFiles", "none"])
def test_some_values_hide_all_on_purpose(mask: str) -> None:
    assert read_mask(mask).hides_all
    assert not read_mask(mask).fault


def test_what_cannot_be_compared_is_no_fault() -> None:
    assert not read_mask("0,9").fault
    assert not read_mask("MIG-GPU-aa00/1/0", uuids=UUIDS).fault


def test_the_mended_mask_has_no_fault() -> None:
    assert read_mask("0,,7").mended == "0,7"
    assert not read_mask(read_mask("0,,1,1").mended, count=2).fault
