"""Every route of the HTTP door, by noun. Each group is named here once."""

from __future__ import annotations

from api.http.routes import Routes
from api.routes import (
    artifacts,
    catalogue,
    events,
    health,
    imports,
    jobs,
    keys,
    leaderboards,
    log,
    projections,
    projects,
    replays,
    trials,
    work,
)

# Looked through in this order for each request: what is asked most often stands first.
ROUTES: tuple[Routes, ...] = (
    work.routes,
    jobs.routes,
    health.routes,
    projects.about,
    projects.routes,
    keys.routes,
    catalogue.routes,
    trials.routes,
    replays.routes,
    artifacts.routes,
    events.routes,
    imports.routes,
    projections.routes,
    leaderboards.routes,
    log.routes,
)
