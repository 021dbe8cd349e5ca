"""Lets engines that are started with this folder on their path draft as if wide passes were cheap:
nothing is measured, and what a test sees does not depend on what else the machine does. Nor does
transformers look through its files in each of their processes.
"""

import sys

import transformers_files  # noqa: F401

if "bushel.engine.process" in sys.orig_argv:
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    from bushel.engine.drafts import cost_profile

    # By its file: whatever else stands beside it stays off the path.
    _file = Path(__file__).parents[2] / "engine/drafts/cheap_passes.py"
    _spec = spec_from_file_location("cheap_passes", _file)
    assert _spec is not None
    assert _spec.loader is not None
    _module = module_from_spec(_spec)
    _spec.loader.exec_module(_module)
    cost_profile.measure = _module.cheap
