"""Request bodies: read as they come, refused at the limit."""

from fastapi import Request

from outlast.protocol.errors import PayloadTooLarge

SMALL_BODY_BYTES = 64 * 1024


async def read(request: Request, limit: int) -> bytes:
    """The raw body. Raises: PayloadTooLarge before more than `limit` bytes are held.

    The rest of a refused body is left to the server, which discards it: closing on a client that still sends would
    reset the connection, and the client would never see the answer.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(limit: int) -> PayloadTooLarge:
    named = "the limit of this path" if limit == SMALL_BODY_BYTES else "limits.max_body_bytes"
    return PayloadTooLarge(f"The body is larger than {limit} bytes ({named}).")
