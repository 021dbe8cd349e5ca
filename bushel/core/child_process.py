"""The first code of a child: it becomes the module that the front named, or says why it cannot.

Started by the front as `python -m bushel.core.child_process MODULE DESCRIPTOR`. Where MLX cannot be
imported neither could the next child, so the front has to hear of it as of a broken checkpoint.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

from bushel.core.backend import require_backend
from bushel.core.child_link import Link
from bushel.core.errors import BackendError
from bushel.core.wire import Failed


def main(module: str, descriptor: int) -> int:
    try:
        require_backend()
    except BackendError as error:
        link: Link[Any] = Link(descriptor, Any)
        link.send(Failed(str(error)))
        return 2
    sys.argv = [module, str(descriptor)]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
