"""A measuring run: plan, measurement and records."""
