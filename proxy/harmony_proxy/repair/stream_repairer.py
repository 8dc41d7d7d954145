"""Repair or block a streamed answer while it passes.

An event passes at once, byte for byte, unless text that was not emitted yet may become a leak. Cheap patterns decide when the checks run;
the checks judge the exchange so far. A verdict that later text could undo (an open code fence, a marker that more text follows)
is postponed, within bounds. From the first failure on, the text is parsed as Harmony and rewritten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain

from harmony_conformance.apis.api import Framing
from harmony_conformance.apis.registry import find_api
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.transport.messages import Request, Response
from harmony_proxy.guard.error_responses import (
    BLOCKED,
    BROKEN_OFF,
    NOT_EXAMINED,
    blocked_message,
    error_event,
    unexamined_message,
)
from harmony_proxy.policy.policy import Action, FailMode
from harmony_proxy.policy.repair_interface import Actions, Caller, call_here, caller_for
from harmony_proxy.repair.answer.action_notes import ActionNotes
from harmony_proxy.repair.answer.repair_table import NO_REPAIR
from harmony_proxy.repair.answer.strict_leaks import LEAK_CHECKS, as_answer
from harmony_proxy.repair.request_facts import read_facts
from harmony_proxy.repair.responses.repeated_texts import has_permanent_finding
from harmony_proxy.repair.responses.whole_calls import WholeCalls
from harmony_proxy.repair.stream_handlers import create_rewriter, is_final_event
from harmony_proxy.repair.stream_parts.emitted_history import EmittedHistory
from harmony_proxy.repair.stream_parts.event_matching import EventTemplates
from harmony_proxy.repair.stream_parts.event_splitter import LineSplitter, RawEvent, Splitter, SseSplitter
from harmony_proxy.repair.stream_parts.hold_buffer import HOLD_LIMIT, HoldBuffer, joined
from harmony_proxy.repair.stream_parts.other_clients_view import OtherClientsView
from harmony_proxy.repair.stream_parts.repair_accounting import FINISH_CHECK, TOO_LATE, UNDECLARED_NAME, RepairAccount
from harmony_proxy.repair.stream_parts.rewriter import StreamRewriter, TextKey
from harmony_proxy.repair.stream_parts.stream_judge import PROBES, SIGNS, StreamJudge
from harmony_proxy.repair.stream_parts.stream_rules import ChoiceProgress, StreamRules
from harmony_proxy.repair.stream_parts.text_tracker import Status
from harmony_proxy.repair.text.leaked_text_parser import NoDestinationError


class StreamRepairer:
    """Repairs or blocks one stream. Stores the emitted and the buffered events, the texts of each choice, and the actions."""

    def __init__(  # noqa: PLR0913 - the settings of a stream
        self,
        request: Request,
        response: Response,
        api: str,
        actions: Mapping[str, Action],
        *,
        fallback: Action,
        request_id: str,
        limit: int,
        fail: FailMode = FailMode.OPEN,
        reasoning_field: str | None = None,
        call_apart: Caller = call_here,
    ) -> None:
        self.is_terminated = False
        x = Exchange(id=request_id, request=request, response=response, api=api)
        facts = caller_for(x, call_apart)(read_facts, request, api)
        self._api, self._id = facts.api, request_id
        x, actions = as_answer(replace(x, api=facts.api), actions)
        active = {check: action for check, action in actions.items() if action is not Action.OBSERVE}
        self._rules = rules = StreamRules(actions=active, fallback=fallback, fails_closed=fail is FailMode.CLOSED)
        self._drops_unexamined, self._passes_all = False, False
        self._is_answer, self._limit, self._size = response.is_success, limit, 0
        self._is_lines = find_api(self._api).framing is Framing.LINES and response.is_line_stream
        self._splitter: Splitter = LineSplitter(limit=limit) if self._is_lines else SseSplitter(limit=limit)
        self._judge = StreamJudge(x, is_lines=self._is_lines, blocked=rules.blocked_checks, call_apart=call_apart)
        self._notes, self._templates = ActionNotes(), EventTemplates()
        self._calls = WholeCalls(x, active, self._notes)
        self._accounting = RepairAccount(self._judge, self._notes, rules.repaired_checks)
        keeps_bytes = bool(rules.blockable_checks)
        self._handler = create_rewriter(
            x, facts, active, self._judge, self._notes, keeps_bytes=keeps_bytes, reasoning_field=reasoning_field
        )
        is_unrepairable = self._handler is None and self._is_answer
        self._unrepairable_checks = rules.repaired_checks & ({FINISH_CHECK} if is_unrepairable else frozenset[str]())
        self._history = EmittedHistory(None, keeps_bytes=keeps_bytes or bool(self._unrepairable_checks))
        self._buffered, self._progress = HoldBuffer(limit=limit), ChoiceProgress()
        read_checks = LEAK_CHECKS & rules.blockable_checks if self._handler is not None else frozenset[str]()
        self._others = OtherClientsView(
            self._judge, read_checks, blocked=rules.blocked_checks, is_error=not response.is_success
        )
        self._blocking_checks: tuple[str, ...] = ()

    @property
    def actions(self) -> Actions:
        """Return the actions so far."""
        return self._notes.to_actions(self._blocking_checks)

    @property
    def _number(self) -> int:
        return 0 if self._handler is None else self._handler.number

    def may_be_judged(self, data: bytes) -> bool:
        """Return True if these next bytes may make the checks run, which takes time on a long stream."""
        return bool(self._buffered.pieces) or SIGNS.search(data) is not None

    def feed(self, data: bytes) -> list[bytes]:
        """Process more bytes of the body, and return the bytes to send now."""
        if self.is_terminated or not data:
            return []
        if self._passes_all:
            return [data]
        self._size += len(data)
        if self._splitter.is_at_boundary and self._size <= self._limit and self._matches_template(data):
            return [data]
        out = [one for piece in self._splitter.feed(data) for one in self._take(piece)]
        if self._splitter.is_over_limit or self._size > self._limit:
            out += self.give_up(f"the answer is larger than the limit of {self._limit} bytes")
        return joined(out)

    def close(self) -> list[bytes]:
        """Process the end of the answer, and return the remaining bytes to send."""
        if self.is_terminated or self._passes_all:
            return []
        last, rest = self._splitter.last(), self._splitter.rest()
        is_read = last is not None and (last.value is not None or last.is_done)
        out: list[bytes] = []
        if is_read:  # clients read a last event without an end
            out = [one for piece in self._splitter.feed(self._splitter.end) for one in self._take(piece)]
        elif last is not None:
            out = self._reject_unreadable(last)
        out += [*self._finish(), *self._flush()]
        self._record_unrepaired()
        if self.is_terminated:
            return joined(out)
        is_dropped = self._rules.fails_closed and self._is_answer and not is_read
        data = b"".join([*out, b"" if is_dropped else self._splitter.rest()])
        is_open = is_read and (self._is_lines or data.endswith(rest + self._splitter.end))
        return joined([data.removesuffix(self._splitter.end) if is_open else data])

    def abort(self) -> list[bytes]:
        """Process a connection that the server broke off.

        Buffered events are emitted, rewritten where they leak, or withheld, as `fail` requires. An incomplete event is dropped.
        """
        if self.is_terminated:
            return []
        self._drops_unexamined = self._rules.fails_closed
        out = [] if self._passes_all else [*self._resolve(is_last=True), *self._flush()]
        self._record_unrepaired()
        if not self.is_terminated:
            message = f"The server broke off its answer (request {self._id})"
            out.append(error_event(self._api, BROKEN_OFF, message, number=self._number))
        return joined(out)

    def _take(self, piece: RawEvent) -> list[bytes]:
        if self.is_terminated or self._passes_all:
            return [] if self.is_terminated else [piece.raw]
        piece.is_strict = self._others.is_reading
        if self._rules.fails_closed:
            piece.read_strictly()
        handler = self._handler
        if handler is not None and self._matches_template(piece.raw):
            return [piece.raw]
        piece = self._calls.clean(piece)
        if error := self._reject_unreadable(piece):
            return error
        if handler is None:
            return self._take_plain(piece)
        piece.parts = handler.parts(piece)
        is_waiting = bool(self._buffered.pieces) or self._others.is_waiting
        if not is_waiting and not piece.is_done and self._passes(handler, piece):
            handler.record_emitted(piece)
            if len(piece.parts) == 1:
                handler.learn(piece, self._templates)
            return [piece.raw]
        self._buffer_event(piece)
        for part in piece.parts:
            self._progress.add(part.choice, is_finished=part.finish is not None)
            for tracked, fragment in handler.texts_of(part):
                tracked.add(fragment)
        if piece.is_done or handler.is_end(piece):
            return self._finish()
        if handler.announces(piece) and not self._buffered.is_full:
            return []
        waits = handler.ends_with_choices and self._rules.blockable_checks and self._progress.is_complete
        return [] if waits else self._resolve(is_last=False)

    def _matches_template(self, raw: bytes) -> bool:
        """Record an event as emitted, and return True, if it matches the template of an earlier event and its text is safe."""
        handler = self._handler
        if handler is None or self._buffered.pieces or handler.is_rewriting:
            return False
        fit = self._templates.fit(raw)
        if fit is None or not fit[0].tracker.pass_if_safe(fit[1]):
            return False
        handler.grow(raw, fit[0].key, fit[1], fit[2])
        return True

    def _take_plain(self, piece: RawEvent) -> list[bytes]:
        """Process an event of an answer that is only blocked. Its last event is buffered until the whole answer was judged."""
        if not (
            piece.is_done or self._buffered.pieces or (self._rules.blockable_checks and is_final_event(piece.value))
        ):
            self._history.add(piece.raw, ())
            return [piece.raw]
        self._buffer_event(piece)
        if piece.is_done:
            return self._finish()
        return self._no_verdict() if self._buffered.is_full else []

    def _reject_unreadable(self, piece: RawEvent) -> list[bytes]:
        """End the answer at an event that leaks where no check reads it; at an unreadable one, if the policy says `fail = "closed"`."""
        if failing := self._others.read(piece):
            return self._block(failing)
        if reason := piece.reject_reason(is_answer=self._is_answer, is_strict=self._rules.fails_closed):
            self._notes.record_unrepaired(("*",), reason)
        return self._end(NOT_EXAMINED, unexamined_message(self._id)) if reason and self._rules.fails_closed else []

    def _buffer_event(self, piece: RawEvent) -> None:
        self._accounting.record_event(piece)
        handler = self._handler
        is_suspect = handler is not None and handler.must_be_judged(piece)
        is_odd = handler.is_unexpected_call if handler is not None and handler.declared_functions else None
        self._buffered.add(piece, is_odd, must_be_judged=is_suspect)

    def _passes(self, handler: StreamRewriter, piece: RawEvent) -> bool:
        """Return True if an event has only text that cannot be part of a leak."""
        if handler.is_rewriting or handler.announces(piece) or handler.is_end(piece) or handler.must_be_judged(piece):
            return False
        return all(
            handler.is_plain(part)
            and all(tracked.pass_if_safe(fragment) for tracked, fragment in handler.texts_of(part))
            for part in piece.parts
        )

    def _resolve(self, *, is_last: bool) -> list[bytes]:
        """Judge the buffered events if necessary, and return the bytes that can be emitted."""
        handler = self._handler
        if handler is None or not self._rules.stream_checks:
            return self._release_or_drop()
        if self._others.is_waiting:
            if not (is_last or self._buffered.is_full):
                return []
            if failing := self._others.failing_checks(handler.emission.raw, self._buffered.pieces):
                return self._block(failing)
        statuses = {place: tracked.status() for place, tracked in handler.texts.items()}
        unclear = [place for place, status in statuses.items() if status is not Status.CLEAR]
        is_odd = self._buffered.has_unexpected_call and not handler.cleans_names
        if not is_odd and not unclear and not self._buffered.must_be_judged:
            return self._release()
        is_over = not all(map(self._may_grow, unclear))
        if is_odd or is_last or is_over or self._buffered.must_be_judged or Status.READY in statuses.values():
            if not (is_last or self._judge.may_read_again(self._size)):
                return self._no_verdict() if self._buffered.is_full else []
            so_far = self._judge.exchange(handler.emission, self._buffered.pieces)
            findings = self._judge.failures_of(so_far, self._rules.stream_checks)
            growing = (tracked for place, tracked in handler.texts.items() if self._may_grow(place))
            undecided = [tracked for tracked in growing if not tracked.is_resolved and tracked.pending]
            waits = any(one.can_become_leak for one in undecided) or (undecided and self._judge.may_become_leak(so_far))
            if not findings and (is_last or not waits):
                return self._release_or_drop()
            if (
                not (is_odd := is_odd or (self._buffered.must_be_judged and has_permanent_finding(findings)))
                and not unclear
            ):
                return self._release()
            ready = (place for place, status in statuses.items() if status is Status.READY and self._may_grow(place))
            more = (handler.probe(place, fragment) for place in ready for fragment in PROBES)
            probes = chain(handler.next_text_events() if is_over else (), more)
            if not (is_last or is_odd):
                findings = self._judge.filter_final(findings, handler.emission, self._buffered.pieces, probes)
            if findings:
                return self._act(handler, findings, handler.restrict_to_findings(statuses, findings), is_last=is_last)
        return self._no_verdict() if self._buffered.is_full else []

    def _may_grow(self, place: TextKey) -> bool:
        return place[0] not in self._progress.finished

    def _no_verdict(self) -> list[bytes]:
        """Emit the buffered events and stop tracking their texts; end the answer if the policy says `fail = "closed"`."""
        self._notes.record_unrepaired(self._rules.stream_checks, f"no verdict within {HOLD_LIMIT} bytes")
        if self._rules.fails_closed:
            return self._end(NOT_EXAMINED, unexamined_message(self._id))
        for tracked in self._handler.texts.values() if self._handler is not None else ():
            tracked.is_ignored = tracked.is_ignored or (tracked.parser is None and bool(tracked.pending))
        return self._release()

    def _release_or_drop(self) -> list[bytes]:
        """Emit the buffered events, which have no failure; drop them if an aborted answer left them incomplete."""
        if not (self._drops_unexamined and self._buffered.pieces):
            return self._release()
        self._buffered.take()
        self._notes.record_unrepaired(("*",), "the answer broke off before it was examined completely")
        return []

    def _act(
        self, handler: StreamRewriter, findings: Collection[str], statuses: Mapping[TextKey, Status], *, is_last: bool
    ) -> list[bytes]:
        """Repair or block failures. A repair is judged before it is emitted."""
        if blocking := self._rules.blocked_checks & frozenset(findings):
            return self._block(blocking)
        pieces, roll_back, repaired = self._buffered.pieces, handler.create_rollback(), dict(self._notes.repair_counts)
        errors = [piece for piece in pieces if piece.is_error]  # errors are not rewritten
        snapshot = self._accounting.snapshot(handler.emission, pieces)
        handler.can_roll_back = True
        try:
            handler.begin(statuses)
            is_all = not handler.ends_with_choices or (is_last and not self._drops_unexamined)
            out = self._release(() if is_all else self._progress.waiting(statuses))
        except NoDestinationError as problem:
            reason = f"the model wrote {problem}"
        else:
            unrepaired = NO_REPAIR if b"".join(out) == b"".join(piece.raw for piece in pieces) else TOO_LATE
            reason = handler.problem or (unrepaired if Status.READY in statuses.values() or errors else UNDECLARED_NAME)
            is_blocked = handler.problem and self._rules.fallback is Action.BLOCK
            if not is_blocked and not self._judge.find_failures(handler.emission, errors, findings):
                self._notes.count(findings)
                self._accounting.start(snapshot)
                return out
        finally:
            handler.can_roll_back = False
        self._notes.repair_counts = repaired
        self._buffered.put_back(pieces)
        roll_back()
        handler.forget(statuses)
        self._notes.record_unrepaired(findings, reason)
        return self._block(findings) if self._rules.fallback is Action.BLOCK else self._release()

    def _release(self, waiting: Collection[int] = ()) -> list[bytes]:
        """Emit the buffered events, rewritten where they leak, except for those of choices that wait."""
        pieces, handler = self._buffered.take(waiting), self._handler
        if handler is None:
            for piece in pieces:
                self._history.add(piece.raw, ())
            return [piece.raw for piece in pieces]
        out = [one for piece in pieces for one in handler.rewrite_event(piece)]
        for place, tracked in handler.texts.items():
            if tracked.pending and place[0] not in waiting:
                tracked.mark_emitted()
        return out if not handler.problem or handler.can_roll_back else self._with_problem(handler, out)

    def _with_problem(self, handler: StreamRewriter, out: list[bytes]) -> list[bytes]:
        """Return `out`, in which text after a leak could not be rewritten, or block the answer."""
        self._notes.record_unrepaired(self._rules.stream_checks, handler.problem)
        if self._rules.fallback is not Action.BLOCK:
            return out
        failing = self._judge.find_failures(handler.emission, (), self._rules.stream_checks)
        return self._block(failing or self._notes.repair_counts.keys() & self._rules.stream_checks)

    def _finish(self) -> list[bytes]:
        """Judge the complete answer, and emit or block its end."""
        number, out = self._number, self._resolve(is_last=True)  # number of the next event if the buffer is dropped
        if self.is_terminated or not (blockable := self._rules.blockable_checks):
            return out
        emission = self._history if self._handler is None else self._handler.emission
        failing = self._judge.failing_checks_of_stream(emission, self._buffered.pieces, blockable)
        return self._block(failing, number) if failing else out

    def _record_unrepaired(self) -> None:
        """Record the repairable checks that still fail."""
        if self.is_terminated or self._passes_all:
            return
        if self._handler is not None:
            self._accounting.close(self._handler)
        elif self._unrepairable_checks:
            pieces = self._buffered.pieces
            failing = self._judge.failing_checks_of_stream(self._history, pieces, self._unrepairable_checks)
            self._notes.record_unrepaired(failing, f"answers of the API {self._api} are not repaired")

    def _flush(self) -> Iterable[bytes]:
        """Return the text that parsers still buffer if the stream ends without a finish reason."""
        if self._handler is None or self.is_terminated:
            return ()
        rest = self._handler.rest()
        return self._with_problem(self._handler, rest) if self._handler.problem else rest

    def _block(self, checks: Collection[str], number: int | None = None) -> list[bytes]:
        self._blocking_checks = tuple(sorted(checks))
        return self._end(BLOCKED, blocked_message(self._blocking_checks, self._id), number)

    def _end(self, kind: str, message: str, number: int | None = None) -> list[bytes]:
        """Drop the buffered events, and return the error that ends the answer."""
        self.is_terminated = True
        self._buffered.take()
        return [error_event(self._api, kind, message, number=self._number if number is None else number)]

    def give_up(self, reason: str) -> list[bytes]:
        """Stop examining: emit the buffered events and pass all further bytes, or end the answer if the policy is closed."""
        if self.is_terminated or self._passes_all:
            return []
        self._notes.record_unrepaired(self._rules.stream_checks | self._rules.blockable_checks, reason)
        if self._rules.fails_closed:
            return self._end(NOT_EXAMINED, unexamined_message(self._id))
        out = [*self._release(), *self._flush(), self._splitter.rest()]
        self._passes_all = True
        self._handler, self._history = None, EmittedHistory(None, keeps_bytes=False)
        return out
