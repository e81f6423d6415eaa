"""One job: where it is, its curves, its speed, its ranks, its saves."""
from panels import ORANGE, RED, annotation, dashboard, graph, panel, query, stat, variable
from step_metrics import StepPanels

JOB = 'mt_namespace=~"$mt_namespace", mt_job="$mt_job"'
RANK = f'{JOB}, rank=~"$rank", node=~"$node"'
COMPUTE = f'rate(mt_step_phase_seconds_total{{{RANK}, phase=~"forward|backward"}}[$__rate_interval])'
BADPUT = f"sum without (cause) (mt_job_badput_seconds_total{{{JOB}}})"


def overview():
    state = panel("stat", "State", [query(f"mt_job_state{{{JOB}}} == 1", "{{state}}", instant=True)], "none",
                  width=4, height=4, description="What `mtctl describe` says.")
    state["options"] = dict(state["options"], textMode="name", graphMode="none")
    return [
        state,
        stat("Progress", f"mt_job_step{{{JOB}}} / (mt_job_total_steps{{{JOB}}} > 0)", "percentunit",
             description="Steps done of the run's length."),
        stat("Time left", f"""(mt_job_total_steps{{{JOB}}} - mt_job_step{{{JOB}}})
             * avg_over_time(mt_job_step_seconds{{{JOB}}}[$__rate_interval])""", "s",
             description="At the present step time."),
        stat("Loss", f"mt_train_loss{{{JOB}}}", "none", description="Nats per token, last step."),
        stat("Goodput", f"""mt_job_goodput_seconds_total{{{JOB}}}
             / (mt_job_goodput_seconds_total{{{JOB}}} + {BADPUT})""", "percentunit", steps=[(0, RED), (0.9, ORANGE),
             (0.97, "green")], description="Share of the job's life spent in steps that moved it forward."),
        stat("Last checkpoint", f"time() - mt_checkpoint_last_success_timestamp_seconds{{{JOB}}}", "s",
             steps=[(3600, ORANGE), (14400, RED)], description="Age of the newest complete one: what a fault now costs."),
    ]


def training(steps):
    return [
        steps.graph("Loss", (f"mt_validation_loss{{{JOB}}}", "validation"), width=12, height=10),
        steps.graph("Gradient norm", (f"10 * quantile_over_time(0.5, mt_grad_norm{{{JOB}}}[1h])", "alert above"), width=12,
                    height=10),
        steps.graph("Learning rate"),
        steps.graph("Loss scale"),
        graph("Skipped steps", [(f"increase(mt_skipped_steps_total{{{JOB}}}[$__rate_interval])", "{{reason}}")], "short",
              steps=[(1, ORANGE)], description="Updates left out because a gradient was not finite."),
        graph("Validation, bits per byte", [(f"mt_validation_bpb{{{JOB}}}", "bits per byte")], "short",
              description="Compares models whose tokenizers differ. Empty where the run's tokenizer does not know bytes."),
        graph("Validation perplexity", [(f"mt_validation_perplexity{{{JOB}}}", "perplexity")], "short", log=True,
              description="e to the power of the validation loss, per token."),
        *steps.rest("Training"),
    ]


def speed(steps):
    return [
        steps.graph("Step time",
                    (f"""histogram_quantile(0.5, sum by (le)
                     (rate(mt_step_duration_seconds_bucket{{{RANK}}}[$__rate_interval])))""", "p50 over ranks"),
                    (f"""histogram_quantile(0.99, sum by (le)
                     (rate(mt_step_duration_seconds_bucket{{{RANK}}}[$__rate_interval])))""", "p99 over ranks")),
        graph("Where the time goes", [(f"""avg by (phase) (rate(mt_step_phase_seconds_total{{{RANK}}}[$__rate_interval]))""",
              "{{phase}}")], "percentunit", stacked=True, description="Share of the wall time by phase, mean over ranks."),
        steps.graph("Pipeline bubble",
                    (f"""avg by (pp) (rate(mt_step_phase_seconds_total{{{RANK}, phase="pp_wait"}}[$__rate_interval]))""",
                     "waiting, stage {{pp}}")),
        graph("Tensor-parallel communication",
              [(f"""avg by (tp) (rate(mt_step_phase_seconds_total{{{RANK}, phase="tp_comm"}}[$__rate_interval]))""",
               "tp {{tp}}")], "percentunit",
              description="Share of the wall time in collectives of the ranks that share each matrix, by their place."),
        graph("Slowest rank", [(f"""max(sum by (rank) ({COMPUTE})) / quantile(0.5, sum by (rank) ({COMPUTE}))""",
              "slowest / median")], "none", steps=[(1.15, ORANGE)],
              description="Time in forward and backward; above 1.15 for ten minutes alerts."),
        steps.graph("Tokens per second", (f"rate(mt_job_tokens_total{{{JOB}}}[$__rate_interval])", "with pauses and saves")),
        steps.graph("FLOP/s",
                    (f"rate(mt_model_flops_total{{{JOB}}}[$__rate_interval])", "causal, with pauses and saves")),
        graph("Forward and backward by rank", [(f"sum by (rank, node) ({COMPUTE})", "{{rank}} {{node}}")], "percentunit",
              description="Share of the wall time. The rank that waits least is the slow one."),
        graph("Time in collectives",
              [(f"avg by (op, group) (rate(mt_collective_seconds_total{{{RANK}}}[$__rate_interval]))", "{{op}} {{group}}")],
              "percentunit", stacked=True, description="Share of the wall time, mean over ranks."),
        graph("Payload of collectives",
              [(f"sum by (op, group) (rate(mt_collective_bytes_total{{{RANK}}}[$__rate_interval]))", "{{op}} {{group}}")],
              "Bps", stacked=True),
        graph("Collectives",
              [(f"sum by (op, group) (rate(mt_collective_calls_total{{{RANK}}}[$__rate_interval]))", "{{op}} {{group}}")],
              "ops"),
        *steps.rest("Speed"),
    ]


def ranks():
    return [
        graph("Ranks", [(f"mt_job_ranks{{{JOB}}}", "{{state}}")], "short", stacked=True,
              description="unknown: their node is silent; they may well be training."),
        graph("Step of each rank", [(f"mt_step{{{RANK}}}", "{{rank}} {{node}}")], "none"),
        graph("Memory of ranks by kind", [(f"sum by (kind) (mt_rank_memory_bytes{{{RANK}}})", "{{kind}}")], "bytes",
              stacked=True, description="Arenas of the chosen ranks."),
        graph("Resident memory of ranks", [(f"mt_host_memory_bytes{{{RANK}}}", "{{rank}} {{node}}")], "bytes"),
        graph("Since the last step", [(f"time() - mt_job_last_step_timestamp_seconds{{{JOB}}}", "no step for"),
              (f"mt_job_step_limit_seconds{{{JOB}}}", "alert above")], "s"),
        graph("Communicators came up in", [(f"mt_comm_init_seconds{{{RANK}}}", "{{rank}} {{node}}")], "s"),
    ]


def reliability():
    timeline = panel("state-timeline", "State", [query(f"mt_job_state{{{JOB}}} == 1", "{{state}}")], "none", width=12,
                     fillOpacity=70, lineWidth=0)
    return [
        timeline,
        graph("Time lost", [(f"rate(mt_job_badput_seconds_total{{{JOB}}}[$__rate_interval])", "{{cause}}")],
              "percentunit", stacked=True, width=12, description="Share of the wall time that moved nothing forward."),
        graph("Steps since the last checkpoint",
              [(f"mt_job_step{{{JOB}}} - mt_checkpoint_last_success_step{{{JOB}}}", "steps"),
               (f"2 * mt_checkpoint_interval_steps{{{JOB}}}", "alert above")], "short"),
        graph("Duration of a save", [(f"mt_checkpoint_duration_seconds{{{JOB}}}", "first byte to commit"),
              (f"increase(mt_checkpoint_stall_seconds_total{{{JOB}}}[$__rate_interval])", "training stood still")], "s"),
        graph("Size of a checkpoint", [(f"mt_checkpoint_bytes{{{JOB}}}", "bytes")], "bytes"),
        graph("Failed saves", [(f"increase(mt_checkpoint_failures_total{{{JOB}}}[$__rate_interval])", "failures")], "short",
              steps=[(1, RED)]),
        graph("Save asked for", [(f"mt_checkpoint_pending{{{JOB}}}", "under way")], "bool",
              description="By a user, or because the slots are to be released."),
        graph("Restarts", [(f"increase(mt_job_restarts_total{{{JOB}}}[$__rate_interval])", "{{cause}}")], "short",
              steps=[(3, RED)], description="user: resumed after a pause that released the slots."),
    ]


def build():
    steps = StepPanels(JOB)
    rows = [("Overview", overview()), ("Training", training(steps)), ("Speed", speed(steps)), ("Ranks", ranks()),
            ("Reliability", reliability())]
    steps.complete()
    return dashboard(
        "megatrain-job", "Megatrain / Job", "One training job.",
        [variable("mt_namespace", "Namespace", "label_values(mt_job_state, mt_namespace)"),
         variable("mt_job", "Job", "label_values(mt_job_state, mt_job)", multi=False),
         variable("rank", "Rank", 'label_values(mt_step{mt_job="$mt_job"}, rank)'),
         variable("node", "Node", 'label_values(mt_step{mt_job="$mt_job"}, node)')],
        rows,
        [annotation("Restart", "red", f"increase(mt_job_restarts_total{{{JOB}}}[$__rate_interval]) > 0", "{{cause}}"),
         annotation("Checkpoint", "blue", f"mt_checkpoint_last_success_timestamp_seconds{{{JOB}}} * 1000",
                    "checkpoint complete", value_is_time=True)])
