"""Who is attached to responses that are not stored, in one API process."""

from collections import Counter

from outlast.store.base import ResponseRecord

_Key = tuple[str, str]


class Readers:
    """Counts them by response. Only the process that made a response may end it: it has the connection the response
    lives by, and another process knows nothing of that one."""

    def __init__(self) -> None:
        self._attached: Counter[_Key] = Counter()
        self._made: set[_Key] = set()

    def attached(self, record: ResponseRecord) -> bool:
        """Whether somebody reads this response here; who attaches at once keeps it alive."""
        return self._attached[_key(record)] > 0

    def enter(self, record: ResponseRecord, *, made: bool) -> None:
        """One more. `made`: by this very request."""
        self._attached[_key(record)] += 1
        if made:
            self._made.add(_key(record))

    def leave(self, record: ResponseRecord) -> bool:
        """One less; whether the response is to be ended now."""
        key = _key(record)
        self._attached[key] -= 1
        if self._attached[key] > 0:
            return False
        del self._attached[key]
        made = key in self._made
        self._made.discard(key)
        return made


def _key(record: ResponseRecord) -> _Key:
    return record.tenant, record.id
