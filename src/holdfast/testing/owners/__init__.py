"""One owner, tried with real processes: the contract, its scenarios and the stores."""
