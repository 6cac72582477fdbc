"""From subjects and work to the ledger: the loop, its hands, its journal."""
