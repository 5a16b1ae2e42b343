"""What a look costs: budgets, conversions, sensitivities, exact noise, and the ledger that pays."""
