"""Keys of a request that are not obeyed: hints, names that are not known, and misspelt ones.

What only suggests is ignored, and the log says so once. So is a key that nobody here knows: clients
send what other servers understand. One that is a letter away from a field of this API was meant to
be that field, and is refused with the right name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pydantic import BaseModel

from bushel.core.spelling import one_edit_apart
from bushel.server.api.errors import InvalidField
from bushel.server.api.other_servers_fields import OTHER_SERVERS_FIELDS
from bushel.server.api.shared_fields import IGNORED

logger = logging.getLogger(__name__)

# Names a client makes up must not fill the memory, nor the log.
_MOST_NAMES = 256
_LONGEST_NAME = 64
_LEAST_LETTERS = 6  # of a name whose misspelling is told from another word
_logged: set[str] = set()


def note_ignored(name: str, why: str) -> None:
    """One line per name and process."""
    name = name[:_LONGEST_NAME]
    if name not in _logged and len(_logged) < _MOST_NAMES:
        _logged.add(name)
        logger.warning("Ignored the request field %r: %s.", name, why)


def note_unread(body: BaseModel) -> None:
    """InvalidField for a name that is misspelt."""
    fields = type(body).model_fields
    for name in body.model_extra or ():
        require_spelling(name, fields)
        note_ignored(name, "it is not known")
    for name, field in fields.items():
        hint = field.description == IGNORED.description
        if hint and name in body.model_fields_set and getattr(body, name) is not None:
            note_ignored(name, "it is a hint that changes nothing here")


def require_spelling(name: str, fields: Iterable[str]) -> None:
    if len(name) < _LEAST_LETTERS or len(name) > _LONGEST_NAME or name in OTHER_SERVERS_FIELDS:
        return
    for known in fields:
        if one_edit_apart(name, known):
            raise InvalidField(name, f"is not known; {known} is", code="unknown_field")
