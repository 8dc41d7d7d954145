"""Rates of an endpoint that samples: graded tasks sent many times, with confidence intervals."""
