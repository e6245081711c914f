"""Conversations through a shared folder: whole, bounded, and without a trace."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from ddp_doctor.meeting import folder
from ddp_doctor.meeting.folder import MOST_UNREAD, PIECE, Folder


def accepted(listener: socket.socket) -> socket.socket:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            return listener.accept()[0]
        except BlockingIOError:
            time.sleep(0.02)
    raise AssertionError("nobody came")


def pair(share: Path) -> tuple[Folder, Folder, socket.socket, socket.socket]:
    """A host and a guest, and the ends of their conversation."""
    host, guest = Folder(share, "job"), Folder(share, "job")
    assert host.join(claim=True) is None and host.listener is not None
    there = guest.join(claim=True)
    assert there is not None and guest.listener is None
    here = accepted(host.listener)
    for each in (here, there):
        each.settimeout(10)
    return host, guest, here, there


def end(folders: tuple[Folder, ...], *ends: socket.socket) -> None:
    for each in ends:
        each.close()
    threads = [threading.Thread(target=each.close) for each in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_is_said_arrives_whole_and_in_order_and_nothing_stays(tmp_path: Path) -> None:
    host, guest, here, there = pair(tmp_path)
    said = os.urandom(3 * PIECE + 17)
    threading.Thread(target=there.sendall, args=(said,)).start()
    heard = b""
    while len(heard) < len(said):
        heard += here.recv(PIECE)
    here.sendall(b"verdict")
    assert heard == said and there.recv(100) == b"verdict"
    here.sendall(b"farewell")
    end((host, guest), here, there)
    assert list(tmp_path.iterdir()) == []


def test_what_was_said_before_the_end_is_heard_after_it(tmp_path: Path) -> None:
    host, guest, here, there = pair(tmp_path)
    here.sendall(b"verdict")
    here.close()
    assert there.recv(100) == b"verdict" and there.recv(100) == b""
    end((host, guest), there)
    assert list(tmp_path.iterdir()) == []


def test_what_nobody_reads_is_bounded(tmp_path: Path) -> None:
    host, guest, here, there = pair(tmp_path)
    there.setblocking(False)
    give_up = time.monotonic() + 3.0
    while time.monotonic() < give_up:
        try:
            there.send(bytes(1 << 16))
        except BlockingIOError:
            time.sleep(0.05)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert 2 < len(files) <= MOST_UNREAD + 4
    assert sum(path.stat().st_size for path in files) <= (MOST_UNREAD + 1) * PIECE
    end((host, guest), here, there)
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_died_is_replaced_and_what_it_left_removed(tmp_path: Path) -> None:
    place = tmp_path / ".ddp-doctor-job"
    place.mkdir(mode=0o700)
    for name in ("host-0", "0123456789ab-g-7", "0123456789ab.hello"):
        (place / name).touch()
    host = Folder(tmp_path, "job")
    assert host.join(claim=True) is None and host.listener is not None
    end((host,))
    assert list(tmp_path.iterdir()) == []


def test_nobody_hosts_without_a_claim(tmp_path: Path) -> None:
    looking = Folder(tmp_path, "job")
    assert looking.join(claim=False) is None and looking.listener is None and looking.trouble == ""
    end((looking,))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    away = Folder(tmp_path / "away", "job")
    assert away.join(claim=True) is None
    assert away.trouble == f"{tmp_path}/away: No such file or directory"


def test_trouble_stays_said_during_another_try_and_ends_with_one_that_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Folder(tmp_path / "away", "job")
    assert away.join(claim=False) is None
    said = away.trouble
    during: list[str] = []
    look = folder._names

    def names(place: Path) -> list[str]:
        during.append(away.trouble)
        return look(place)

    monkeypatch.setattr(folder, "_names", names)
    (tmp_path / "away").mkdir()
    assert away.join(claim=False) is None
    assert said and during == [said] and away.trouble == ""
    end((away,))


@pytest.mark.parametrize("way", ["link", "open"])
def test_a_place_into_which_others_write_is_refused(tmp_path: Path, way: str) -> None:
    place = tmp_path / ".ddp-doctor-job"
    if way == "link":
        (tmp_path / "else").mkdir()
        place.symlink_to(tmp_path / "else")
    else:
        place.mkdir()
        place.chmod(0o777)
    refused = Folder(tmp_path, "job")
    assert refused.join(claim=True) is None
    assert "somebody else" in refused.trouble


def test_a_piece_that_is_none_ends_the_conversation(tmp_path: Path) -> None:
    host, guest, here, there = pair(tmp_path)
    (place,) = tmp_path.iterdir()
    mine = next(path.name for path in place.iterdir() if path.name.startswith("host"))
    assert mine == "host-0"
    os.mkfifo(place / f"{_name(guest)}-g-0")
    assert here.recv(100) == b""
    end((host, guest), here, there)
    assert list(tmp_path.iterdir()) == []


def _name(guest: Folder) -> str:
    assert guest._pump is not None
    return next(iter(guest._pump._sides))


def test_what_was_left_behind_and_what_is_no_file_ends_nobody_s_conversation(tmp_path: Path) -> None:
    host, guest, here, there = pair(tmp_path)
    (place,) = tmp_path.iterdir()
    (place / "aaaaaaaaaaaa.welcome.new").touch()
    (place / "aaaaaaaaaaaa.hello").touch()
    (place / "bbbbbbbbbbbb-g-0").mkdir()
    (place / "bbbbbbbbbbbb.hello").touch()
    deadline = time.monotonic() + 5
    while (place / "bbbbbbbbbbbb.hello").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    here.sendall(b"verdict")
    assert there.recv(100) == b"verdict"
    assert "Is a directory" in host.trouble or "symbolic" in host.trouble
    end((host, guest), here, there)
    assert [path.name for path in place.iterdir()] == ["bbbbbbbbbbbb-g-0"]


def test_a_full_disk_ends_one_conversation_and_is_said_even_after_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, guest, here, there = pair(tmp_path)
    other = Folder(tmp_path, "job")
    theirs = other.join(claim=False)
    assert theirs is not None and host.listener is not None
    ours = accepted(host.listener)
    theirs.settimeout(10)
    full = _name(guest)
    write = folder._create

    def create(path: Path, data: bytes = b"") -> None:
        if data and path.name.startswith(full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, data)

    monkeypatch.setattr(folder, "_create", create)
    there.sendall(b"lost")
    assert there.recv(100) == b""
    assert guest.trouble == f"{tmp_path}: No space left on device" and host.trouble == ""
    here.sendall(b"lost as well")
    assert here.recv(100) == b""
    assert host.trouble == f"{tmp_path}: No space left on device" and host.guests == 1
    ours.sendall(b"verdict")
    assert theirs.recv(100) == b"verdict"
    there.close()
    again = guest.join(claim=False)
    assert again is not None and "No space left" in guest.trouble
    end((host, guest, other), here, again, ours, theirs)
    assert list(tmp_path.iterdir()) == []


def test_a_welcome_that_cannot_be_said_is_nobody_else_s_end(tmp_path: Path) -> None:
    host, guest, here, there = pair(tmp_path)
    (place,) = tmp_path.iterdir()
    for name in ("aaaaaaaaaaaa.welcome.new", "bbbbbbbbbbbb.welcome", "cccccccccccc.hello", "dddddddddddd-h-0"):
        (place / name).mkdir()
    (place / os.fsdecode(b"garbage-\xff")).write_bytes(b"x")
    for name in ("aaaaaaaaaaaa.hello", "bbbbbbbbbbbb.hello", "dddddddddddd.hello"):
        (place / name).touch()
    time.sleep(0.5)
    there.sendall(b"facts")
    assert here.recv(100) == b"facts"
    assert host.trouble == f"{tmp_path}: Is a directory"
    end((host, guest), here, there)
    left = {path.name for path in place.iterdir() if not path.name.startswith("garbage")}
    assert left == {"aaaaaaaaaaaa.welcome.new", "bbbbbbbbbbbb.welcome", "cccccccccccc.hello", "dddddddddddd-h-0"}
