"""Lets whoever loads a model with this folder on its path take for ever, in C code that hears no
signal. BUSHEL_TEST_SLOW_LOAD is a file that is there from then on, with the process's id in it.
"""

import hashlib
import os
import sys
from typing import Any

_told = os.environ.get("BUSHEL_TEST_SLOW_LOAD")

if _told and {"bushel.engine.process", "check"} & set(sys.orig_argv):
    from bushel.models import load

    _module = sys.modules[load.__module__]

    def _settle(*_: Any) -> None:
        with open(f"{_told}.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(f"{_told}.new", str(_told))
        hashlib.pbkdf2_hmac("sha256", b"", b"", (1 << 31) - 1)

    _module._settle = _settle  # type: ignore[attr-defined]
