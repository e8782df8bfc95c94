"""The HTTP door: what a request must be before a route sees it, and what an answer is."""
