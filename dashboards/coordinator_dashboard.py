"""The coordinator itself: is it up, is it quick, what does it refuse."""
from panels import ORANGE, RED, annotation, dashboard, graph, panel, query, stat, variable

# Both daemons serve build, start and memory; the scrape job tells them apart.
INSTANCE = 'job="mt-coordinator", instance=~"$instance"'


def p(quantile, metric, by="le", more=""):
    return f"histogram_quantile({quantile}, sum by ({by}) (rate({metric}_bucket{{{INSTANCE}{more}}}[$__rate_interval])))"


def health():
    version = panel("table", "Version", [query(f"mt_build_info{{{INSTANCE}}}", instant=True, table=True)], "none", width=8,
                    height=4)
    return [
        stat("Up", 'up{job="mt-coordinator"}', "bool", steps=[(0, RED), (1, "green")]),
        stat("Serving since", f"time() - mt_start_timestamp_seconds{{{INSTANCE}}}", "s"),
        stat("Resident memory", f"mt_resident_memory_bytes{{{INSTANCE}}}", "bytes", steps=[(1073741824, ORANGE)]),
        stat("Free for state", f'mt_storage_free_bytes{{{INSTANCE}, root="state"}}', "bytes",
             steps=[(0, RED), (1073741824, "green")]),
        version,
        graph("Resident memory", [(f"mt_resident_memory_bytes{{{INSTANCE}}}", "{{instance}}")], "bytes"),
        graph("Commit of the store", [(p(0.5, "mt_store_commit_seconds"), "p50"),
              (p(0.99, "mt_store_commit_seconds"), "p99")], "s", steps=[(0.1, ORANGE)],
              description="With its sync: the disk's speed."),
        graph("Writing the history", [(p(0.5, "mt_history_flush_seconds"), "p50"),
              (p(0.99, "mt_history_flush_seconds"), "p99")], "s", steps=[(0.1, ORANGE)]),
    ]


def calls():
    handled = f"grpc_server_handled_total{{{INSTANCE}}}"
    return [
        graph("Calls", [(f"sum by (grpc_service, grpc_method) (rate(grpc_server_started_total{{{INSTANCE}}}[$__rate_interval]))",
              "{{grpc_service}}/{{grpc_method}}")], "reqps", width=12),
        graph("Codes", [(f"sum by (grpc_code) (rate({handled}[$__rate_interval]))", "{{grpc_code}}")], "reqps", width=12,
              stacked=True, description="NotFound, FailedPrecondition and InvalidArgument are the clients' mistakes."),
        graph("Duration, p99 by method", [(p(0.99, "grpc_server_handling_seconds", "le, grpc_method",
              ', grpc_method!="Wait"'), "{{grpc_method}}")], "s", width=12, steps=[(0.15, ORANGE)]),
        graph("Open streams", [(f"mt_watchers{{{INSTANCE}}}", "{{stream}}")], "short", stacked=True, width=6),
        graph("Dropped from slow streams", [(f"increase(mt_events_dropped_total{{{INSTANCE}}}[$__rate_interval])",
              "messages")], "short", steps=[(1, ORANGE)], width=6),
    ]


def refusals():
    counters = [("Leases that ran out", "mt_lease_expirations_total"), ("Messages of closed epochs", "mt_fenced_messages_total"),
                ("Malformed messages", "mt_malformed_messages_total"),
                ("Transitions refused", "mt_state_transitions_invalid_total"),
                ("Failed writes of the history", "mt_history_errors_total")]
    found = [graph(title, [(f"increase({name}{{{INSTANCE}}}[$__rate_interval])", "{{instance}}")], "short",
                   steps=[(1, ORANGE)]) for title, name in counters]
    return [*found, graph("Since the last heartbeat",
                          [(f"time() - mt_worker_last_heartbeat_timestamp_seconds{{{INSTANCE}}}", "{{node}}")], "s",
                          steps=[(10, ORANGE), (30, RED)])]


def build():
    return dashboard(
        "megatrain-coordinator", "Megatrain / Coordinator", "The coordinator itself.",
        [variable("instance", "Instance", 'label_values(mt_start_timestamp_seconds{job="mt-coordinator"}, instance)')],
        [("Health", health()), ("Calls", calls()), ("Refused and failed", refusals())],
        [annotation("Start", "orange", f"mt_start_timestamp_seconds{{{INSTANCE}}} * 1000", "coordinator started",
                    value_is_time=True)])
