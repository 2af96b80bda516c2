# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal: nothing lost, nothing twice, whatever the writer's end was."""

import json
import sys
from pathlib import Path

import pytest

from engine.apps.games.journal import Journal, JournalError
from tests.paths import REPOSITORY
from tests.programs import python

HEADER = {"what": "a test"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def test_entries_are_there_when_the_journal_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "journal.jsonl"
    with Journal(path, HEADER) as journal:
        assert journal.header == HEADER
        journal.append({"number": 1, "name": "Ünïcode\nline"})
        journal.append({"number": 2})
    with Journal(path, {"what": "ignored"}) as journal:
        assert journal.header == HEADER
        assert journal.entries == [{"number": 1, "name": "Ünïcode\nline"}, {"number": 2}]


@pytest.mark.parametrize("cut", range(1, 14))
def test_journal_discards_an_incomplete_line(path: Path, cut: int) -> None:
    with Journal(path, HEADER) as journal:
        journal.append({"number": 1})
        journal.append({"number": 2})
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal(path, HEADER) as journal:
        assert journal.entries == [{"number": 1}]
        journal.append({"number": 3})
    with Journal(path, HEADER) as journal:
        assert journal.entries == [{"number": 1}, {"number": 3}]


def test_a_cut_header_begins_anew(path: Path) -> None:
    path.write_bytes(b'{"wha')
    with Journal(path, HEADER) as journal:
        assert (journal.header, journal.entries) == (HEADER, [])
    assert json.loads(path.read_text("utf-8")) == HEADER


@pytest.mark.parametrize("content", [b"notes", b'{"my":1}', b'{"what":"another"', b'{"my":1}\n{"last":2}'])
def test_a_file_that_is_something_else_stays_as_it_was(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    if b"\n" in content:
        Journal(path, HEADER).close()  # Whoever opens it looks at its header.
    else:
        with pytest.raises(JournalError, match="is not a journal"):
            Journal(path, HEADER)
    assert path.read_bytes() == content


def test_journal_starts_over_when_it_has_only_zeros(path: Path) -> None:
    path.write_bytes(bytes(100))
    with Journal(path, HEADER) as journal:
        assert (journal.header, journal.entries) == (HEADER, [])


@pytest.mark.skipif(sys.platform == "win32", reason="needs device files")
def test_a_device_is_no_journal() -> None:
    with pytest.raises(JournalError, match="no regular file"):
        Journal("/dev/full", HEADER)


def test_names_that_are_no_text_come_back_as_they_were(path: Path) -> None:
    Journal(path, {"name": "caf\udce9"}).close()
    with Journal(path, HEADER) as journal:
        assert journal.header == {"name": "caf\udce9"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of file sizes")
def test_a_full_disk_leaves_whole_lines_and_says_so_once(path: Path) -> None:
    import resource

    journal = Journal(path, HEADER)
    journal.append({"number": 1})
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, limits[1]))
    try:
        with pytest.raises(JournalError, match="cannot write"):
            journal.append({"number": 2})
        journal.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before


def test_the_last_entry_s_numbers(path: Path) -> None:
    with Journal(path, HEADER) as journal:
        assert journal.last("end") == 0
        journal.append({"end": 7})
        journal.append({"end": 9})
    with Journal(path, HEADER) as journal:
        assert (journal.last("end"), journal.last("other")) == (9, 0)
        journal.append({"end": "many"})
    with Journal(path, HEADER) as journal, pytest.raises(JournalError, match="last line"):
        journal.last("end")


def test_a_damaged_line_in_the_middle_is_named(path: Path) -> None:
    with Journal(path, HEADER) as journal:
        journal.append({"number": 1})
    text = path.read_bytes()
    for damage in (b"garbage\n", b"[1]\n", b"\xff\xfe\n"):
        path.write_bytes(text + damage + b'{"number":2}\n')
        with pytest.raises(JournalError, match="line 3, is damaged"):
            Journal(path, HEADER)
        assert path.read_bytes() == text + damage + b'{"number":2}\n'


def test_two_processes_cannot_have_the_same_journal(path: Path) -> None:
    script = f"from engine.apps.games.journal import Journal\nJournal({str(path)!r}, {{}})"
    with Journal(path, HEADER):
        other = python(script, status=1, cwd=REPOSITORY)
    assert "is in use by another process" in other.stderr
    Journal(path, HEADER).close()


def test_a_restart_keeps_a_file_that_is_no_journal_of_the_command(path: Path) -> None:
    path.write_text('{"what": "notes"}\n', "utf-8")
    with pytest.raises(JournalError, match="move it away"):
        Journal(path, HEADER, restart=True)
    assert path.read_text("utf-8") == '{"what": "notes"}\n'
