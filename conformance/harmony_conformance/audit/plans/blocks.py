"""Blocks of plain files of JSON lines, which a judging process reads itself, and the selection of their lines by a plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from harmony_conformance.audit.plans.plan import AuditPlan, PlanName
from harmony_conformance.audit.plans.prefilter import find_lines, line_at
from harmony_conformance.audit.renamed_files import REPLACED, FileIdentity, ReplacedFileError, open_same
from harmony_conformance.evidence.file_lines import LINE_LIMIT, NOT_READ, Line, UnreadableLine

BLOCK_BYTES = 16 * 1024 * 1024
_PART_BYTES = 512 * 1024
"""A block is read in parts. Each part stays in the cache until it was searched."""
_READ_BYTES = 16 * 1024
_PROBE, _LONG_LINE = 64 * 1024, 512
_LINE_FEED = re.compile(rb"\n")
_BLANK = re.compile(rb"\n[^\S\n]*(?=\n|\Z)")
_UTF8_MARK = b"\xef\xbb\xbf"
_SHORTENED = "the file became shorter while it was read"
_REWRITTEN = "the file was rewritten while it was read, as by a rotation that truncates"


@dataclass(frozen=True, kw_only=True)
class Block:
    """Whole lines of a file, from one byte offset to another, and the plan that selects among them.

    The file is the one with this identity, if it has one: its name may change before the block is read.
    """

    file: str
    start: int
    end: int
    plan: AuditPlan
    identity: FileIdentity | None = None


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The records of a batch or block that a plan judges.

    Attributes:
        lines: These records, and those that cannot be read, in the order of the log.
        by_needle: The offsets of the records that only `NEEDLE_CHECKS` judge.
        passed_over: The number of the other records.
    """

    lines: tuple[Line | UnreadableLine, ...]
    by_needle: frozenset[int] = frozenset()
    passed_over: int = 0


def split_file(
    path: str, plan: AuditPlan, limit: int | None = None, identity: FileIdentity | None = None
) -> Iterator[Block | UnreadableLine]:
    """Yield the blocks of the first `limit` bytes of a file, and its lines that are too long.

    What is added meanwhile is left out; a file may also be truncated.
    """
    with open_same(path, identity) as file:
        size = file.seek(0, 2) if limit is None else min(limit, file.seek(0, 2))
        start = 0
        while start < size:
            size = min(size, file.seek(0, 2))
            if start >= size:
                yield UnreadableLine(offset=start, number=0, kind=_SHORTENED)
                return
            middle = min(start + BLOCK_BYTES, size)
            end = _end_of_line(file, middle, size)
            if end - middle <= LINE_LIMIT:
                yield Block(file=path, start=start, end=end, plan=plan, identity=identity)
            else:
                file.seek(start)
                begin = start + file.read(middle - start).rfind(b"\n") + 1
                if begin > start:
                    yield Block(file=path, start=start, end=begin, plan=plan, identity=identity)
                detail = f"{end - begin} bytes, at most {LINE_LIMIT} are read"
                yield UnreadableLine(offset=begin, number=1, kind="the line is too long", detail=detail)
            start = end


def _end_of_line(file: BinaryIO, place: int, size: int) -> int:
    """Return the end of the line at a place of a file of this size. The line feed belongs to the line."""
    file.seek(place)
    while place < size:
        piece = file.read(min(_READ_BYTES, size - place))
        if not piece:  # truncated
            break
        found = piece.find(b"\n")
        if found >= 0:
            return place + found + 1
        place += len(piece)
    return place


def read_block(block: Block) -> Selection:
    """Read a block, and select its lines. What cannot be read of it is an unreadable line."""
    try:
        with open_same(block.file, block.identity, buffering=0) as file:
            return _read_lines(file, block)
    except ReplacedFileError:
        return Selection(lines=(_lost(block, block.start, REPLACED),))
    except OSError as error:
        return Selection(lines=(_lost(block, block.start, NOT_READ, error.strerror or str(error)),))


def _read_lines(file: BinaryIO, block: Block) -> Selection:
    lines: list[Line | UnreadableLine] = []
    by_needle: set[int] = set()
    count, end = 0, block.start
    if block.start:
        file.seek(block.start - 1)
        if file.read(1) not in (b"\n", b""):
            return Selection(lines=(_lost(block, block.start, _REWRITTEN),))
    for start, data in _parts(file, block):
        needles = dict(find_lines(data, block.plan.library))
        sampled = _sampled_lines(data, start, block.plan)
        lines += _chosen_lines(data, start, needles | sampled)
        by_needle.update(start + begin for begin in needles.keys() - sampled.keys())
        count += _count_records(data)
        end = start + len(data)
    passed_over = count - len(lines)
    if end < block.end:
        lines.append(_lost(block, end, _SHORTENED))
    return Selection(lines=tuple(lines), by_needle=frozenset(by_needle), passed_over=passed_over)


def _lost(block: Block, start: int, kind: str, reason: str = "") -> UnreadableLine:
    """Return the place and number of bytes of a block that cannot be read."""
    detail = f"bytes {start} to {block.end}"
    return UnreadableLine(offset=start, number=0, kind=kind, detail=f"{reason}, {detail}" if reason else detail)


def _parts(file: BinaryIO, block: Block) -> Iterator[tuple[int, bytes]]:
    """Yield the whole lines of a block, part by part, with the offset of each part."""
    start = block.start
    while start < block.end:
        end = _end_of_line(file, min(start + _PART_BYTES, block.end), block.end)
        file.seek(start)
        data = file.read(end - start)
        if not data:  # truncated
            break
        yield start, data
        start += len(data)


def _chosen_lines(data: bytes, start: int, places: Mapping[int, int]) -> Iterator[Line | UnreadableLine]:
    """Yield the lines at some places of a part of a file, unless they are empty."""
    for begin, end in sorted(places.items()):
        offset, text = start + begin, data[begin:end]
        text = text if offset else text.removeprefix(_UTF8_MARK)
        if len(text) > LINE_LIMIT:
            detail = f"{len(text)} bytes, at most {LINE_LIMIT} are read"
            yield UnreadableLine(offset=offset, number=1, kind="the line is too long", detail=detail)
        elif text.strip():
            yield Line(offset=offset, number=1, data=text, has_end=end < len(data))


def _count_records(data: bytes) -> int:
    """Return the number of lines that are not blank. If lines are long, a search for each is several times as fast as counting line feeds."""
    if data.count(b"\n", 0, _PROBE) > _PROBE // _LONG_LINE:
        plain = data.removesuffix(b"\n")
        return plain.count(b"\n") + 1 - len(_BLANK.findall(b"\n" + plain))
    count, begin = 0, 0
    while begin < len(data):
        end = data.find(b"\n", begin) % (len(data) + 1)  # -1: the last line, without a line feed
        count += end - begin > _LONG_LINE or bool(data[begin:end].strip())
        begin = end + 1
    return count


def _sampled_lines(data: bytes, start: int, plan: AuditPlan) -> dict[int, int]:
    if not plan.sample:
        return {0: line_at(data, 0)[1]} if not start and data else {}
    begins = [0, *(match.end() for match in _LINE_FEED.finditer(data))]
    return {begin: line_at(data, begin)[1] for begin in begins if begin < len(data) and plan.is_sampled(start + begin)}


def select(lines: Iterable[Line | UnreadableLine], plan: AuditPlan) -> Selection:
    """Select records that were read already."""
    chosen: list[Line | UnreadableLine] = []
    by_needle: set[int] = set()
    passed_over = 0
    for line in lines:
        if isinstance(line, UnreadableLine) or plan.is_sampled(line.offset):
            chosen.append(line)
        elif plan.name is PlanName.NEEDLES and _has_needle(line.data, plan):
            chosen.append(line)
            by_needle.add(line.offset)
        else:
            passed_over += 1
    return Selection(lines=tuple(chosen), by_needle=frozenset(by_needle), passed_over=passed_over)


def _has_needle(record: bytes, plan: AuditPlan) -> bool:
    """Return True if a record, which may have several lines, has a needle."""
    return any(find_lines(record.replace(b"\n", b" "), plan.library))
