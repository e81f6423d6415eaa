"""The coordinator is killed at random moments under load: nothing acknowledged is lost or done twice, no rank is disturbed.

30 kills; `scripts/test.sh --full` (MT_LONG_TESTS=1): 100. How long the API was away is printed, not judged: the machine may
be busy.
"""
import json
import os
import random
import threading
import time
import unittest

from service_harness import ServiceTest

KILLS = 100 if os.environ.get("MT_LONG_TESTS") else 30


class CoordinatorKillTest(ServiceTest):
    slots = 2

    def test_random_kills_lose_and_double_nothing(self):
        rng = random.Random(20260101)
        self.submit("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0",
                    "--set", "parallel.data=1", "--set", "checkpoint.keep_last=1000")
        self.wait_step(5)
        pids = self.rank_processes()
        self.assertEqual(len(pids), 1)
        acknowledged = []  # (verb, operation or job uid)
        over = threading.Event()
        user = threading.Thread(target=self.use, args=(random.Random(7), over, acknowledged))
        user.start()
        slowest = 0.0
        try:
            for _ in range(KILLS):
                time.sleep(rng.uniform(0.05, 0.8))
                self.kill_coordinator()
                time.sleep(rng.uniform(0, 0.2))
                self.start_coordinator()
                begin = time.monotonic()
                self.wait_api()
                slowest = max(slowest, time.monotonic() - begin)
        finally:
            over.set()
            user.join()
        print(f"\n{KILLS} kills: the API was back within {slowest:.2f} s of every start")
        self.wait_nodes(1)
        self.assertEqual(self.rank_processes(), pids, "a rank was disturbed")
        self.check_acknowledged(acknowledged)
        if self.state() != "RUNNING":
            self.mtctl("resume", "tiny", "--wait")
        step = self.step()
        self.wait_step(step + 5)
        self.losses()  # every step exactly once
        self.check_events()

    def use(self, rng, over, acknowledged):
        """One user: pauses, resumes, checkpoints, submits; notes what was acknowledged."""
        count = 0
        while not over.is_set():
            verb = rng.choice(["pause", "resume", "checkpoint", "submit"])
            if verb == "submit":
                count += 1
                done = self.mtctl("-o", "json", "submit", "-f", str(self.job_file), "--set", f"name=extra-{count}",
                                  "--set", "placement.slots=2", check=False)
            else:
                done = self.mtctl("-o", "json", verb, "tiny", check=False)
            if done.returncode == 0 and done.stdout.strip():
                reply = json.loads(done.stdout)
                acknowledged.append((verb, reply.get("job", reply).get("uid") if verb == "submit" else reply["name"]))

    def check_acknowledged(self, acknowledged):
        self.assertGreater(len(acknowledged), 5, "the kills left no room for any verb")
        operations = {o["name"]: o for o in self.wait_for("every operation's end", self.all_done)}
        names = [what for verb, what in acknowledged if verb != "submit"]
        self.assertEqual(len(names), len(set(names)), "one operation was handed out twice")
        for verb, what in acknowledged:
            if verb != "submit":
                self.assertIn(what, operations, f"an acknowledged {verb} was lost")
        request_ids = [o["request_id"] for o in operations.values()]
        self.assertEqual(len(request_ids), len(set(request_ids)), "a request was done twice")
        jobs = json.loads(self.mtctl("-o", "json", "get", "jobs").stdout)["jobs"]
        uids = [j["uid"] for j in jobs]
        self.assertEqual(len(uids), len(set(uids)))
        extra = [j["name"] for j in jobs if j["name"].startswith("extra-")]
        self.assertEqual(len(extra), len(set(extra)), "a submit was done twice")
        for verb, what in acknowledged:
            if verb == "submit":
                self.assertIn(what, uids, "an acknowledged submit was lost")

    def all_done(self):
        operations = self.operations()
        return operations if all(o.get("done") for o in operations) else None

    def check_events(self):
        events = json.loads(self.mtctl("-o", "json", "get", "events").stdout)["events"]
        seqs = [int(e["seq"]) for e in events]
        self.assertEqual(seqs, list(range(seqs[0], seqs[0] + len(seqs))), "events have gaps or doubles")


if __name__ == "__main__":
    unittest.main()
