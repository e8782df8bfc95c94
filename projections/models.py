"""Every read model, in the order they are brought up to date: one may look into those before it."""

from projections import audit_trail, catalogue, job_metrics, jobs, leaderboard, trials, work_queue

READ_MODELS = (
    catalogue.MODEL,
    jobs.MODEL,
    trials.MODEL,
    job_metrics.MODEL,
    work_queue.MODEL,
    leaderboard.MODEL,
    audit_trail.MODEL,
)
