"""Lets the devices of engines that are started with this folder on their path fail, each once.

BUSHEL_TEST_DEVICE_FAULTS is `FOLDER:PLACE=MOMENT:…`, as `tests.engine.late_faults` has them: the
first engine fails at the first place, the one that replaces it at the second, and so on.
"""

import os
import sys

_asked = os.environ.get("BUSHEL_TEST_DEVICE_FAULTS")

if _asked and "bushel.engine.process" in sys.orig_argv:
    from bushel.models.vision.vision_model import VisionModel
    from tests.engine.late_faults import LateFaults

    _folder, *_faults = _asked.split(":")
    for _fault in _faults:
        _place, _moment = _fault.split("=")
        try:
            os.close(os.open(os.path.join(_folder, _place), os.O_CREAT | os.O_EXCL))
        except FileExistsError:  # an engine before this one had it
            continue
        LateFaults(_place, [int(_moment)], VisionModel)
        break
