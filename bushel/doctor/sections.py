"""The sections of a report, in their order, by the modules that they are."""

from __future__ import annotations

from collections.abc import Mapping

SECTIONS: Mapping[str, str] = {
    name: f"bushel.doctor.{name}"
    for name in ("system", "device", "samplers", "speed", "batch", "server", "sleep")
}
