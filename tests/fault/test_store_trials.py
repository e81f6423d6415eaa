"""The coordinator's store is lost, mixed up, taken from a backup, or there twice, while jobs are in all states of their life: no
rank is killed, no job is left without its ranks, and no epoch is given twice.

Two trials of each kind; with MT_LONG_TESTS=1 twenty. Trials run side by side.
"""
import concurrent.futures
import os
import shutil
import signal
import time
import unittest

from trial import NODES, Trial, TrialError, send

from harness import ClusterTest
from service_harness import SOON_LOST, free_port

LONG = bool(os.environ.get("MT_LONG_TESTS"))
TRIALS = 20 if LONG else 2
SIDE_BY_SIDE = 4 if LONG else 2
# Limits of silence of a coordinator whose silence a trial waits out, and longer than the loss of a node and the limit of a phantom take:
# what follows from silence has followed. The long form has the limits of production, 30 s each.
SILENCE = () if LONG else (*SOON_LOST, "--phantom-after", "8")
QUIET_SECONDS = 75 if LONG else 15


class StoreTrials(ClusterTest):
    """What the trials below share; no test itself."""

    def trials(self, kind, before=lambda trial: None):
        """`before` prepares a trial's folder; nothing of the trial runs yet."""
        def one(number):
            # No trial's folder is the beginning of another one's name: a trial ends what names its folder.
            with Trial(self.dir / f"{kind.__name__}-{number:02}", self.dir / "data") as trial:
                before(trial)
                trial.start_all()
                kind(trial)
        with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            results = [pool.submit(one, i) for i in range(TRIALS)]
            for result in results:
                result.result()

    def back_to_the_right_store(self, trial):
        trial.check_undisturbed()
        trial.start_coordinator("coordinator")
        trial.wait_ready()
        trial.check_undisturbed()
        trial.check_all_go_on()
        trial.check_epochs()


class WrongStoreTrials(StoreTrials):
    def test_an_empty_store_is_refused(self):
        def empty(trial):
            trial.stop_coordinator()
            (trial.dir / "nothing").mkdir()
            trial.start_coordinator("nothing")
            code = trial.coordinators["nothing"].wait(timeout=30)
            if code != 65:
                raise TrialError(f"a coordinator without a store ended with {code}")
            if "init --state" not in (trial.dir / "nothing.log").read_text():
                raise TrialError("the message does not name `mt-coordinator init`")
            self.back_to_the_right_store(trial)
        self.trials(empty)

    def test_the_store_of_another_cluster_gives_no_orders(self):
        def other_cluster(trial):
            """It knows a node of this name, and has a job in its queue that the trial's node could take."""
            trial.init_store("foreign")
            trial.start_coordinator("foreign")
            trial.start_worker("node-a")
            trial.wait_ready(1)
            trial.stop_worker("node-a")
            (trial.dir / "node-a").rename(trial.dir / "node-a-before")  # the trial's own one has never met that cluster
            trial.submit("waiting")
            trial.wait_state("waiting", "QUEUED")
            trial.uids.pop("waiting")
            trial.stop_coordinator("foreign")

        def foreign(trial):
            trial.stop_coordinator()
            trial.start_coordinator("foreign")
            trial.wait_for("the workers say that this is another cluster", lambda: all(
                "WRONG_CLUSTER" in (trial.dir / f"{n}.log").read_text() or "another cluster" in
                (trial.dir / f"{n}.log").read_text() for n in NODES))
            trial.wait_for("the workers are not ready, and say why",
                           lambda: all("WRONG_CLUSTER" in trial.http(n, "/readyz") for n in NODES))
            trial.wait_refused("WRONG_CLUSTER")
            trial.check_trains_on("running")
            time.sleep(3)
            waiting = trial.wait_job("waiting")
            if waiting["state"] != "QUEUED":
                raise TrialError(f"a foreign coordinator placed a job: {waiting}")
            trial.stop_coordinator("foreign")
            self.back_to_the_right_store(trial)
        self.trials(foreign, before=other_cluster)


class OlderStoreTrials(StoreTrials):
    def older_copy(self, trial):
        """A copy of the store, and after it a release, a resume and a submit that the copy does not know. Returns the
        epoch that `held` has since."""
        trial.stop_coordinator()
        shutil.copytree(trial.dir / "coordinator", trial.dir / "older")
        trial.start_coordinator()
        trial.wait_ready()
        send(trial.ranks["held"], signal.SIGCONT)
        trial.mtctl("pause", "held", "--release", "--wait")
        trial.mtctl("resume", "held", "--wait")
        trial.mtctl("pause", "held", "--hold", "--wait")
        trial.ranks["held"] = trial.rank_pids("held")
        trial.submit("later", "--set", "priority=1")  # else it waits behind `queued`
        trial.wait_trains("later")
        trial.ranks["later"] = trial.rank_pids("later")
        send(trial.ranks["later"], signal.SIGSTOP)
        epoch = trial.wait_job("held")["epoch"]
        trial.stop_coordinator()
        return epoch

    def test_an_older_copy_gives_no_orders(self):
        def older(trial):
            self.older_copy(trial)
            trial.start_coordinator("older")
            self.wait_superseded(trial)
            trial.wait_refused("TERM_SUPERSEDED")
            trial.check_undisturbed()
            trial.check_trains_on("running")
            # It reads and changes nothing, and says so.
            for order in (("pause", "running"), ("kill", "running", "--yes")):
                refused = trial.mtctl(*order, check=False)
                if refused.returncode != 3 or "gives no orders" not in refused.stderr:
                    raise TrialError(f"a superseded coordinator, told to {order[0]}: {refused.returncode}, {refused.stderr}")
            if not trial.json("get", "jobs") or trial.job("later"):
                raise TrialError("a superseded coordinator does not answer reads from what it knows")
            for shown in (trial.mtctl("get", "nodes").stderr, trial.mtctl("version").stdout):
                if "gives no orders" not in shown:
                    raise TrialError(f"a superseded coordinator does not say so: {shown}")
            if "mt_superseded 1" not in trial.http("older"):
                raise TrialError("mt_superseded is not 1")
            # Nor does its next start, whose term may be higher than that of the one that it is a copy of.
            for _ in range(2):
                trial.stop_coordinator("older")
                trial.start_coordinator("older")
                trial.wait_for("the older copy answers", lambda: trial.json("get", "jobs"))
                if "admin restore" not in trial.server().get("no_orders", ""):
                    raise TrialError(f"a superseded coordinator gives orders after another start: {trial.server()}")
            trial.check_undisturbed()
            trial.stop_coordinator("older")
            self.back_to_the_right_store(trial)
        self.trials(older)

    def wait_superseded(self, trial):
        trial.wait_for("the older copy says that it is superseded", lambda: trial.json("get", "jobs") and
                       "admin restore" in trial.server().get("no_orders", ""))

    def test_a_declared_restore_takes_the_ranks_back(self):
        def restored(trial):
            epoch = self.older_copy(trial)
            trial.start_coordinator("older", flags=SILENCE)
            self.wait_superseded(trial)
            term = trial.server()["term"]
            trial.mtctl("admin", "restore", "--reason", "the newer store is lost", "--yes")
            declared = trial.server()
            if declared["term"] < term + 2**20 or declared.get("no_orders"):
                raise TrialError(f"after a declared restore in term {term}: {declared}")
            trial.wait_ready()
            trial.wait_for("held is adopted", lambda: (trial.job("held") or {}).get("epoch") == epoch)
            trial.wait_state("held", "PAUSED_HELD")
            trial.check_undisturbed()
            time.sleep(QUIET_SECONDS)
            trial.check_undisturbed()
            uid = trial.uids.pop("later")
            trial.check_no_phantoms()
            orphans = trial.wait_for("an answer", lambda: trial.json("get", "orphans"))["orphans"]
            if [(o["job_uid"], o["job_name"], len(o["nodes"]), o["ranks"], o["world_size"]) for o in orphans] != [(uid, "later", 1, 1, 1)]:
                raise TrialError(f"orphans: {orphans}")
            jobs = trial.wait_for("an answer", lambda: trial.json("get", "jobs"))["jobs"]
            if "later" in [job["name"] for job in jobs]:
                raise TrialError("a job is shown that the restored store does not know")
            trial.wait_for("the adoption", lambda: trial.mtctl("adopt", uid, check=False).returncode == 0)
            trial.uids["later"] = uid
            with trial.going_on("later"):
                trial.wait_state("later", "RUNNING")
                trial.wait_step_beyond("later")
            left = trial.wait_for("an answer", lambda: trial.json("get", "orphans")).get("orphans")
            if left:
                raise TrialError(f"orphans after their adoption: {left}")
            missing = {"RestoreDeclared", "RestoreSettled"} - {e["type"] for e in trial.events()}
            if missing:
                raise TrialError(f"no event {missing}")
            trial.check_all_go_on()
            trial.check_epochs()
        self.trials(restored)


class TwinStoreTrials(StoreTrials):
    def test_two_copies_at_once(self):
        def twice(trial):
            trial.stop_coordinator()
            shutil.copytree(trial.dir / "coordinator", trial.dir / "second")
            trial.start_coordinator()
            trial.wait_ready()
            trial.wait_obeyed()
            other = free_port()
            trial.start_coordinator("second", port=other)
            trial.wait_for("the second copy answers", lambda: trial.json("get", "jobs", port=other))
            trial.stop_worker("node-b")
            trial.start_worker("node-b", port=other)
            trial.wait_for("the second copy says that it is superseded",
                           lambda: "superseded" in trial.mtctl("version", check=False, port=other).stdout.lower())
            trial.check_undisturbed()
            trial.stop_coordinator("second")
            trial.stop_worker("node-b")
            trial.start_worker("node-b")
            trial.wait_ready()
            if trial.server().get("no_orders"):
                raise TrialError(f"the copy that was obeyed first gives no orders: {trial.server()}")
            trial.check_undisturbed()
            trial.check_all_go_on()
            trial.check_epochs()
        self.trials(twice)


if __name__ == "__main__":
    unittest.main()
