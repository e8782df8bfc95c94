"""The forms that people hand in, checked with pydantic at the door and turned into facts.

A refusal is one sentence that names the field and what to do. It never shows a value, because that may be a secret.
"""
