"""Reports of NCCL's RAS service, as 2.27.5 (text) and 2.30.7 (JSON) wrote them on a described node."""

from __future__ import annotations

import pytest

from ddp_doctor.readers.nccl_ras import read_ras

TEXT = """NCCL version 2.30.7 compiled with CUDA 12.9
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          2            1          2        2

Communicators... (0.000s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         2         2         2   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (225052ab15671a33) MISMATCH
  Communicator ranks have different AllReduce operation counts
  Rank 0 has launched up to operation 1 -- GPU 0 managed by process 20792 on node 192.0.2.2
  Rank 1 has not launched any operations -- GPU 1 managed by process 20793 on node 192.0.2.2

"""
RANK = """{"rank": %d, "host": "192.0.2.2", "pid": %d, "cuda_dev": 0, "nvml_dev": 0,
 "status": {"init_state": %d, "async_error": 0, "abort_flag": false}, "collective_counts": {"AllReduce": %d, "Reduce": 0}}"""
JSON = (
    '{"nccl_version": "2.30.7", "communicators_count": 1, "communicators": [{"hash": "0x2", "size": 3, "ranks": ['
    + RANK % (0, 20792, 0, 1)
    + ","
    + RANK % (1, 20793, 0, 0)
    + '], "missing_ranks": [{"rank": 2, "host": "192.0.2.3", "pid": 7, "status": {"unresponsive": true}}]}]}'
)


def test_the_text_names_the_ranks_that_differ() -> None:
    (found,) = read_ras(TEXT, "RAS")
    assert (found.version, found.size, found.status, found.errors) == ("2.30.7", 2, "RUNNING", "MISMATCH")
    assert [(rank.rank, rank.pid, rank.launched, rank.ready) for rank in found.ranks] == [
        (0, 20792, 1, True),
        (1, 20793, 0, True),
    ]
    assert "Rank 1 has not launched any operations" in found.text()


def test_a_communicator_in_init_names_no_rank() -> None:
    (found,) = read_ras(TEXT.partition("#0-0")[0].replace("RUNNING  MISMATCH", "INIT      OK"), "RAS")
    assert (found.status, found.errors, found.ranks) == ("INIT", "OK", ())


def test_json_names_every_rank_and_those_out_of_reach() -> None:
    (found,) = read_ras(JSON, "RAS")
    assert (found.size, found.status, found.errors) == (3, "RUNNING", "INCOMPLETE")
    assert [(rank.rank, rank.pid, rank.launched, rank.lost) for rank in found.ranks] == [
        (0, 20792, 1, False),
        (1, 20793, 0, False),
        (2, 7, None, True),
    ]
    (still,) = read_ras(JSON.replace('"init_state": 0', '"init_state": 7'), "RAS")
    assert still.status == "INIT" and still.ranks[0].ready is False


@pytest.mark.parametrize(
    "text",
    [
        "",
        "HTTP/1.1 400 Bad Request\r\n",
        "{",
        '{"communicators": 3}',
        "[" * 100_000,
        '{"communicators": ' + "[" * 90_000,
    ],
)
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="RAS"):
        read_ras(text, "RAS")


def test_wrong_types_in_json_are_passed_over() -> None:
    text = '{"communicators": [7, {"size": "x", "ranks": [1, {"rank": "a"}, {"rank": 1, "pid": "p", "status": 3}]}]}'
    (found,) = read_ras(text, "RAS")
    assert [(rank.rank, rank.pid, rank.ready) for rank in found.ranks] == [(1, None, None)]
