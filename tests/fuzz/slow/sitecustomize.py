"""Makes every process that is started with this folder on its path have a slow disk.

Only the disk tier reads with `readv` and finishes a file with `replace`. BUSHEL_TEST_DISK_DELAY is
the longest that either takes, in milliseconds.
"""

import os
import random
import time

_longest = float(os.environ.get("BUSHEL_TEST_DISK_DELAY", "0")) / 1000
_readv, _replace = os.readv, os.replace


def readv(*args, **kwargs):
    time.sleep(random.uniform(0, _longest))
    return _readv(*args, **kwargs)


def replace(*args, **kwargs):
    time.sleep(random.uniform(0, _longest))
    return _replace(*args, **kwargs)


if _longest:
    os.readv, os.replace = readv, replace
