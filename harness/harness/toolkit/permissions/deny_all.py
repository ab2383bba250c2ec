"""The approver of a session without an operator."""

from __future__ import annotations

from .approver import Approver
from .asking import no_approver
from .questions import ApprovalDecision, ApprovalRequest, ApprovalScope

__all__ = ["DenyAllApprover"]


class DenyAllApprover(Approver):
    """Approver that denies every request."""

    @property
    def by_sight(self) -> bool:
        """Return False: no operator sees the request."""
        return False

    def can_ask(self) -> bool:
        """Return False: no operator can be asked."""
        return False

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """Deny the call once."""
        advice = no_approver(question.scopes, broken=question.broken)
        return ApprovalDecision(
            ApprovalScope.DENY_ONCE,
            "nobody",
            f"denied: approval required, but no approver is available ({question.reason}; {advice})",
        )
