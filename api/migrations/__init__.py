"""The schema of a store: its revisions, and how a store is made, checked and brought up to date."""
