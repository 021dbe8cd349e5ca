"""Who asks, and whose requests they may see."""

from __future__ import annotations

from dataclasses import dataclass

from bushel.server.errors import ApiError


@dataclass(frozen=True)
class Caller:
    """Whose key a request came with. An operator sees, changes and ends what belongs to any key
    (B68).
    """

    owner: str
    operator: bool

    def sees(self, owner: str) -> bool:
        return self.operator or owner == self.owner

    def require_operator(self, what: str) -> None:
        if not self.operator:
            raise ApiError(
                403,
                f"{what} concerns every key, so it needs an operator's. Start the server with "
                "--operator-key KEY and send that.",
                code="operator_only",
            )
