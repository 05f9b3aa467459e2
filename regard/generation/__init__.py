"""From a network to tokens: logit rules, sampling, search, stopping."""
