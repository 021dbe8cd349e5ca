"""Calls as `<function=read>` elements, their arguments as elements or as a JSON object.

<function=read>
<parameter=path>
a.txt
</parameter>
</function>
"""

from __future__ import annotations

import re
from collections.abc import Generator

from bushel.chat.tool_parsers.reading.key_values import Pairs
from bushel.chat.tool_parsers.reading.parser import NoCall

FUNCTION = "<function="
_NAME = re.compile(r"[ \"']*([^\s<>\"'=]*)[ \"']*")
_END = "</function>"
_PARAMETER = "<parameter="
_PARAMETER_END = "</parameter>"
# One newline on each side of a value is layout. An end that is missing is known by what comes
# next, on a line of its own.
_VALUE_ENDS = (f"\n{_PARAMETER_END}", _PARAMETER_END, f"\n{_PARAMETER}", f"\n{_END}")


class Functions(Pairs):
    def function(self, *ends: str) -> Generator[None]:
        """A call, from behind `<function=`. ends: what may close it instead of its own end."""
        while (head := _NAME.match(self.text)) and head.end() == len(self.text):
            yield
        if not head or self.text[head.end()] not in ">\n":
            raise NoCall
        self.take(head.end() + 1)
        self.name(head.group(1))
        self.begin()
        if (yield from self.peek()) == "{":
            span = yield from self.value(self.part)
            self.whole = span.sound
            yield from self.maybe(_END)
            self.end()
            return
        marker = yield from self.meet(_PARAMETER, _END, *ends)
        while marker == _PARAMETER:
            key, _ = yield from self.until(">")
            yield from self._newline()
            marker = (yield from self.argument(key.strip().strip("\"'"), *_VALUE_ENDS)).strip()
            if marker == _PARAMETER_END:
                marker = yield from self.meet(_PARAMETER, _END, *ends)
        self.close()

    def _newline(self) -> Generator[None]:
        while not self.text:
            yield
        if self.text[0] == "\n":
            self.take(1)
