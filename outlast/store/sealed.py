"""Secrets at rest: AES-GCM under a key of a file only we can read.

The file holds one key a line, `<key id> <base64 of 32 bytes>`, the newest last; new secrets are sealed with the newest
and every row notes which key it needs, so keys can be rotated. Tenant and secret id are authenticated with the text: a
sealed row moved elsewhere does not open.
"""

import base64
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from outlast.protocol import json
from outlast.protocol.compaction import SEAL
from outlast.protocol.errors import ConfigurationError, InternalError
from outlast.protocol.json import JsonObject

_NONCE = 12
# What texts that clients carry are bound to, besides their tenant; no id of a secret is like it.
_CARRIED = "carried"


@dataclass(frozen=True, slots=True)
class Sealed:
    """Nonce and ciphertext, and which key opens them."""

    key_id: str
    data: bytes


class Sealer:
    """Seals and opens with the keys of one file."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}
        self._newest = next(reversed(keys))

    def seal(self, tenant: str, secret_id: str, value: JsonObject) -> Sealed:
        """Seal a JSON object."""
        nonce = os.urandom(_NONCE)
        text = self._ciphers[self._newest].encrypt(nonce, json.dumps(value), _bound_to(tenant, secret_id))
        return Sealed(self._newest, nonce + text)

    def open(self, tenant: str, secret_id: str, sealed: Sealed) -> JsonObject:
        """The object again. Raises: ConfigurationError when its key is not in the file; InternalError when altered."""
        cipher = self._ciphers.get(sealed.key_id)
        if cipher is None:
            raise ConfigurationError(f"secret {secret_id} needs key {sealed.key_id}, which the key file does not hold")
        try:
            text = cipher.decrypt(sealed.data[:_NONCE], sealed.data[_NONCE:], _bound_to(tenant, secret_id))
        except InvalidTag as error:
            raise InternalError(f"secret {secret_id} does not open: its row was altered") from error
        opened: JsonObject = json.loads(text)
        return opened

    def seal_text(self, tenant: str, value: JsonObject) -> str:
        """A JSON object as text that a client carries about: the mark of our seals, key id, nonce and ciphertext."""
        sealed = self.seal(tenant, _CARRIED, value)
        return f"{SEAL}{sealed.key_id}.{base64.urlsafe_b64encode(sealed.data).decode()}"

    def open_text(self, tenant: str, text: str) -> JsonObject | None:
        """What was sealed so for this tenant; None for any other text."""
        key_id, _, data = text.removeprefix(SEAL).partition(".")
        if not text.startswith(SEAL) or key_id not in self._ciphers:
            return None
        try:
            return self.open(tenant, _CARRIED, Sealed(key_id, base64.b64decode(data, altchars=b"-_", validate=True)))
        except (ValueError, InternalError):  # no base64, too short for a nonce, altered, or another tenant's
            return None


def _bound_to(tenant: str, secret_id: str) -> bytes:
    return f"{tenant}\0{secret_id}".encode()


def load_sealer(key_file: Path) -> Sealer:
    """The keys of a file, which is made (mode 0600) when there is none. Raises: ConfigurationError."""
    if not key_file.exists():
        _create(key_file)
    try:
        pairs = [line.split() for line in key_file.read_text().splitlines() if line.strip()]
        keys = {key_id: base64.b64decode(key, validate=True) for key_id, key in pairs}
        return Sealer(keys)
    except (OSError, ValueError, StopIteration) as error:
        raise ConfigurationError(f"key file {key_file} cannot be read: {error or 'it is empty'}") from error


def _create(key_file: Path) -> None:
    """Write the file whole under another name, then link it: of two processes that start, one key wins."""
    key_file.parent.mkdir(parents=True, exist_ok=True)
    line = f"{secrets.token_hex(4)} {base64.b64encode(os.urandom(32)).decode()}\n"
    draft = key_file.with_name(f".{key_file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, key_file)
        except FileExistsError:
            return
    finally:
        draft.unlink()
