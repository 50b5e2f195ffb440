"""One owner, tested with real processes: the contract, its scenarios and the stores."""
