"""All jobs and all nodes at a glance."""
from panels import ORANGE, RED, annotation, dashboard, graph, panel, query, stat, variable

JOB = 'mt_job=~"$mt_job"'
NODE = 'node=~"$node"'
ALIVE = f'mt_job_state{{{JOB}, state!~"SUCCEEDED|FAILED|CANCELLED"}} == 1'


def now():
    jobs = panel("table", "Jobs", [query(f"max by (mt_namespace, mt_job, state) (mt_job_state{{{JOB}}} == 1)",
                 instant=True, table=True)], "none", width=8, height=8)
    return [
        stat("Jobs training", f'sum(mt_job_state{{{JOB}, state="RUNNING"}})', "short"),
        stat("Jobs waiting", "mt_queue_depth", "short", steps=[(20, ORANGE)]),
        stat("Jobs failed", f'sum(mt_job_state{{{JOB}, state="FAILED"}})', "short", steps=[(1, RED)],
             description="Within the last five minutes; then a job's series go."),
        stat("Slots used", 'sum(mt_slots{state="used"}) / sum(mt_slots)', "percentunit"),
        stat("Workers not ready", 'sum(mt_workers{state!="ready"})', "short", steps=[(1, RED)]),
        stat("Tokens per second", f"sum(mt_job_tokens_per_second{{{JOB}}})", "suffix: tok/s"),
        jobs,
        graph("Jobs by state", [(f"sum by (state) (mt_job_state{{{JOB}}}) > 0", "{{state}}")], "short", stacked=True),
        graph("Slots", [("mt_slots", "{{device}} {{state}}")], "short", stacked=True),
    ]


def jobs():
    return [
        graph("Loss", [(f"mt_train_loss{{{JOB}}}", "{{mt_job}}")], "none"),
        graph("Tokens per second", [(f"mt_job_tokens_per_second{{{JOB}}}", "{{mt_job}}")], "suffix: tok/s"),
        graph("FLOP/s per slot", [(f"mt_model_flops_per_second{{{JOB}}} / mt_job_slots{{{JOB}}}", "{{mt_job}}")], "flops",
              description="A job far below its peers is on a slow node or waits for its data."),
        graph("Progress", [(f"mt_job_step{{{JOB}}} / (mt_job_total_steps{{{JOB}}} > 0)", "{{mt_job}}")], "percentunit"),
        graph("Goodput", [(f"""rate(mt_job_goodput_seconds_total{{{JOB}}}[$__rate_interval])""", "{{mt_job}}")],
              "percentunit", steps=[(0, RED), (0.9, ORANGE), (0.97, "green")],
              description="Share of the time in steps that moved the job forward."),
        graph("Time lost", [(f"sum by (cause) (rate(mt_job_badput_seconds_total{{{JOB}}}[$__rate_interval]))", "{{cause}}")],
              "none", stacked=True, description="Job-seconds per second, all jobs."),
        graph("Age of the last checkpoint", [(f"""time() - mt_checkpoint_last_success_timestamp_seconds{{{JOB}}}
              and on (mt_namespace, mt_job) ({ALIVE})""", "{{mt_job}}")], "s", steps=[(14400, ORANGE)]),
        graph("Restarts", [(f"sum by (mt_job, cause) (increase(mt_job_restarts_total{{{JOB}}}[$__rate_interval]))",
              "{{mt_job}} {{cause}}")], "short", steps=[(3, RED)]),
        graph("Wait in the queue", [("""histogram_quantile(0.5, sum by (le)
              (rate(mt_queue_wait_seconds_bucket[$__rate_interval])))""", "p50"), ("""histogram_quantile(0.99, sum by (le)
              (rate(mt_queue_wait_seconds_bucket[$__rate_interval])))""", "p99")], "s"),
    ]


def nodes():
    return [
        graph("Workers", [("mt_workers", "{{state}}")], "short", stacked=True),
        graph("Since the last heartbeat", [(f"time() - mt_worker_last_heartbeat_timestamp_seconds{{{NODE}}}",
              "{{node}}")], "s", steps=[(10, ORANGE), (30, RED)], description="10 s: suspect, 30 s: lost."),
        graph("Agents up", [('up{job="mt-worker"}', "{{instance}}")], "bool"),
        graph("Memory of ranks by node", [(f"sum by (node) (mt_host_memory_bytes{{{JOB}, {NODE}}})", "{{node}}")],
              "bytes", stacked=True),
        graph("Ranks by node", [(f"count by (node) (mt_step{{{JOB}, {NODE}}})", "{{node}}")], "short", stacked=True),
        graph("Slots used by node", [(f'mt_worker_slots{{{NODE}, state="used"}}', "{{node}} {{device}}")], "short", stacked=True),
        graph("Registered", [(f"mt_worker_registered{{{NODE}}}", "{{node}}")], "bool",
              description="0: the agent runs, but has no session with the coordinator."),
        graph("Sessions that ended", [(f"increase(mt_worker_disconnects_total{{{NODE}}}[$__rate_interval])", "{{node}}")],
              "short", steps=[(1, ORANGE)]),
        graph("Heartbeat, round trip p99", [(f"""histogram_quantile(0.99, sum by (le, node)
              (rate(mt_heartbeat_rtt_seconds_bucket{{{NODE}}}[$__rate_interval])))""", "{{node}}")], "s",
              steps=[(0.05, ORANGE)]),
        graph("Reports not acknowledged", [(f"mt_worker_reports_queued{{{NODE}}}", "{{node}}")], "short",
              steps=[(10000, ORANGE)], description="Grows while the coordinator is away; nothing is lost until steps are given up."),
        graph("Steps given up", [(f"increase(mt_worker_steps_dropped_total{{{NODE}}}[$__rate_interval])", "{{node}}")],
              "short", steps=[(1, RED)]),
        graph("Free storage", [("mt_storage_free_bytes", "{{instance}} {{root}}")], "bytes", log=True,
              steps=[(0, RED), (10737418240, "green")]),
    ]


def build():
    return dashboard(
        "megatrain-fleet", "Megatrain / Fleet", "All jobs and all nodes.",
        [variable("mt_job", "Job", "label_values(mt_job_state, mt_job)"),
         variable("rank", "Rank", 'label_values(mt_step{mt_job=~"$mt_job"}, rank)', hide=2),
         variable("node", "Node", "label_values(mt_worker_last_heartbeat_timestamp_seconds, node)")],
        [("Now", now()), ("Jobs", jobs()), ("Nodes", nodes())],
        [annotation("Restart", "red", f"""sum by (mt_job, cause)
                    (increase(mt_job_restarts_total{{{JOB}}}[$__rate_interval])) > 0""", "{{mt_job}} {{cause}}"),
         annotation("Checkpoint", "blue", f"mt_checkpoint_last_success_timestamp_seconds{{{JOB}}} * 1000", "{{mt_job}}",
                    value_is_time=True)])
