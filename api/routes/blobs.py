"""Images that tools returned, by the hash of their bytes; the notes in their place name the path."""

import re

from fastapi import APIRouter
from fastapi.responses import Response

from api.deps import Caller, Ports
from outlast.protocol.errors import NotFound

router = APIRouter(prefix="/v1/blobs", tags=["blobs"])

_ID = re.compile(r"[0-9a-f]{64}")
# A tool's server chose type and bytes: no browser may guess another type or run what is in them. They never change, but
# they are one tenant's.
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "x-content-type-options": "nosniff",
    "cache-control": "private, max-age=31536000, immutable",
}


@router.get("/{blob_id}")
async def get_blob(blob_id: str, caller: Caller, ports: Ports) -> Response:
    """The bytes, under the type the tool gave them. Kept as long as a response or conversation has them."""
    kept = await ports.store.blobs(caller.tenant, [blob_id]) if _ID.fullmatch(blob_id) else {}
    if blob_id not in kept:
        raise NotFound(f"Blob '{blob_id[:80]}' not found.", param="blob_id")
    return Response(kept[blob_id].data, media_type=kept[blob_id].mime_type, headers=_HEADERS)
