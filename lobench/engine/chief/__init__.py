"""The chief: the event loop between scheduler, workers and ledger."""
