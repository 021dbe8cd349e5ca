"""What constrained rows may say next: grammars, masks and thinking budgets."""
