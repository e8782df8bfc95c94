"""One file a revision, in the order of `api.migrations.revision.REVISIONS`."""
