"""The local model: every person's report is private by itself; there is no curator and no ledger. [ENU20]"""
