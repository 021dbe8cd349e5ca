"""Lets engines that are started with this folder on their path draft as if wide passes were cheap:
what a test sees does not depend on what else the machine does.
"""

import sys

if "bushel.engine.process" in sys.orig_argv:
    from bushel.engine.drafts import cost_profile
    from tests.engine.drafts.cheap_passes import cheap

    cost_profile.measure = cheap  # type: ignore[assignment]
