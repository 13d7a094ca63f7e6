"""Server-sent events, as far as model servers use them: bytes in, `data` payloads out.

Rules:
1. `feed` answers with every event that is complete by now, so one network read becomes one batch.
2. Line ends may be LF, CRLF or CR, mixed, and a chunk may end anywhere, also between CR and LF.
3. Comments, `event:`, `id:` and `retry:` are dropped: the payload's own `type` names an event. Several `data` lines
   of one event are joined with LF.
4. `[DONE]` is no payload: it sets `done`, and nothing after it counts.
"""

_DONE = b"[DONE]"


class Parser:
    """The state between two reads: an unfinished event and whether the last byte was a CR."""

    def __init__(self) -> None:
        self.done = False
        # Joined only once an event is complete: joining at every read is quadratic for a large event in small chunks.
        self._pieces: list[bytes] = []
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Payloads of the events this chunk completes, `[DONE]` left out."""
        if self._after_cr or b"\r" in chunk:
            chunk = self._unify(chunk)
        pieces = self._pieces
        boundary = b"\n\n" in chunk or (pieces and pieces[-1][-1:] == b"\n" and chunk[:1] == b"\n")
        if not boundary:
            if chunk:
                pieces.append(chunk)
            return []
        blocks = (b"".join(pieces) + chunk if pieces else chunk).split(b"\n\n")
        rest = blocks.pop()
        self._pieces = [rest] if rest else []
        return self._payloads(blocks)

    def flush(self) -> list[bytes]:
        """What stands unfinished at a clean end of the stream: some servers leave out the last blank line."""
        rest, self._pieces = b"".join(self._pieces), []
        return self._payloads([rest])

    def _unify(self, chunk: bytes) -> bytes:
        if self._after_cr and chunk[:1] == b"\n":
            chunk, self._after_cr = chunk[1:], False
        if chunk:
            self._after_cr = chunk[-1:] == b"\r"
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _payloads(self, blocks: list[bytes]) -> list[bytes]:
        payloads: list[bytes] = []
        for block in blocks:
            data = _data(block)
            if data == _DONE:
                self.done = True
            if self.done:
                break
            if data:
                payloads.append(data)
        return payloads


def _data(block: bytes) -> bytes:
    """The payload of one event. The first two cases are the traffic of known servers, the last is the standard."""
    if block[:6] == b"data: " and b"\n" not in block:
        return block[6:]
    if block[:6] == b"event:":
        second = block.partition(b"\n")[2]
        if second[:6] == b"data: " and b"\n" not in second:
            return second[6:]
    lines = (line[5:].removeprefix(b" ") for line in block.split(b"\n") if line[:5] == b"data:")
    return b"\n".join(lines)
