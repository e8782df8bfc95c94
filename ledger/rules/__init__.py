"""What may happen next: one file per stream, with its state, `evolve`, and the rules as plain functions.

A rule takes the state and keyword arguments and returns the facts to record, `[]` when nothing is new, or raises a
named refusal. No clock, no id, no database.
"""
