"""The commands of a first hour, and mistakes in them, as they are answered on terminals of 60, 80 and 120 columns and without one:
exit code, words of both streams, and lines drawn over each other that never wrap."""
import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import termios

from harness import BIN, UNREACHED, ClusterTest, without_waiting

USAGE, INVALID = 128, 3
WIDTHS = (60, 80, 120)
STYLE = re.compile(r"\x1b\[[0-9;]*m")
NOTHING = ""

# (arguments, exit code, a pattern of stdout, a pattern of stderr). {W}: one for each width, so that names do not meet.
TYPED = [
    # History is whole, or it is said that it is not.
    ("metrics tiny --all -o csv", 0, r"^step,time_us,epoch,attempt,loss,.*\n(\d+,.*\n){120}$", NOTHING),
    ("metrics tiny --steps 1:120 --points 10 -o csv", 0, r"^step,",
     r"thinned: .*every step: mtctl metrics tiny --all --steps 1:120 -o csv"),
    ("metrics tiny --names los", INVALID, NOTHING, r"has no metric los; did you mean loss\?"),
    # What runs is left alone.
    ("dev up --cpu-slots 3", INVALID, NOTHING, r"runs with --cpu-slots 2; .*mtctl dev down && mtctl dev up --cpu-slots 3"),
    ("dev up", 0, r"already up", r"stop it with: mtctl dev down"),
    # What prepare refuses.
    ("data prepare --input lines.jsonl --output x", INVALID, NOTHING, r"--jsonl-key text"),
    ("data prepare --input one.txt --output x", INVALID, NOTHING, r"one document, .*--separator .*--allow-one-document"),
    ("data prepare --input one.txt --output one{W} --allow-one-document", 0, r"1 documents", NOTHING),
    ("data prepare --input text --tokenizer null --output x", INVALID, NOTHING, r"leave it out for bytes"),
    ("data prepare --input text --output out/", INVALID, NOTHING, r"out/text_document"),
    ("data prepare --input text --separator '' --output x", USAGE, NOTHING, r"--separator: is empty"),
    ("data prepare --input lines.jsonl.gz --jsonl-key text --output gz{W}", 0, r"40 documents", NOTHING),
    # Near words.
    ("submti", USAGE, NOTHING, r"^mtctl: no command 'submti'; did you mean submit\?$"),
    ("get jbos", USAGE, NOTHING, r"did you mean jobs\?"),
    ("submit --fllow", USAGE, NOTHING, r"did you mean --follow\?"),
    ("validate -f job.yaml --set n_layer=3", INVALID, NOTHING, r"did you mean model.layers\?"),
    ("validate -f job.yaml --set learning_rate=3", INVALID, NOTHING, r"did you mean optimizer.lr\?"),
    ("validate -f job.yaml --set training.precision=bfloat16", INVALID, NOTHING, r"did you mean bf16\?"),
    ("validate -f job.yaml --set model.activation=silu", INVALID, NOTHING, r"did you mean swiglu\?"),
    ("submit -f nothing.yaml", INVALID, NOTHING, r"no file nothing.yaml \(mtctl init"),
    # Kinds as kubectl writes them.
    ("get job", 0, r"(?m)^tiny +SUCCEEDED", NOTHING),
    ("get jobs", 0, r"(?m)^tiny +SUCCEEDED +120/120 +\d\.\d{4}", NOTHING),
    ("describe job tiny", 0, r"(?m)^Step: +120 of 120$", NOTHING),
    ("describe job/tiny", 0, r"(?m)^Step: +120 of 120$", NOTHING),
    ("describe tiny --spec", 0, r"(?m)^ +micro_batch_size: 2$", NOTHING),
    ("describe tiny", 0, r"(?m)^Events:", NOTHING),
    ("get presets", 0, r"(?m)^gpt2-124m +124\.44M ", NOTHING),
    ("explain memory -f job.yaml", 0, r"(?m)^all 2 ranks .* MiB$", NOTHING),
    ("init gpt2 -f gpt2-{W}.yaml", 0, NOTHING, r"next: mtctl submit -f gpt2-{W}\.yaml --follow"),
    ("help submit", 0, r"(?s)Examples:(\s+mtctl submit .*){3}", NOTHING),
    ("submit --help", 0, r"(?s)Examples:(\s+mtctl submit .*){3}", NOTHING),
    ("version", 0, r"(?m)^mtctl +\d", NOTHING),
    ("top tiny --once", 0, r"tiny", NOTHING),
    ("plot tiny --png loss-{W}.png", 0, NOTHING, r"wrote loss-{W}\.png"),
    ("completion bash", 0, r"mtctl", NOTHING),
    ("wait tiny", 0, NOTHING, r"^job tiny SUCCEEDED: trained to step 120$"),
]

# Drawn to the width: no line is longer than the terminal; their words.
DRAWN = [
    ("submit -f job.yaml --follow --set name=w{W} --set training.train_iters=120", 0, r"120/120 .*loss \d\.\d{4}.*"
     r"job w{W} SUCCEEDED: trained to step 120"),
    ("follow w{W}", 0, r"step 120 of 120, loss \d"),
    ("attach w{W}", 0, r"step 120 of 120, loss \d"),
    ("bench -f job.yaml --steps 20 --warmup 1", 0, r"21/21.*speed +[\d,]+ tokens/s"),
    ("data prepare --input big.txt --separator % --output big{W}", 0, r"100%.*MB/s.*200000 documents"),
    ("plot tiny --vs w{W} --smooth 20", 0, r"perplexity"),
    ("plot tiny", 0, r"loss"),
]


class WidthsTest(ClusterTest):
    def setUp(self):
        super().setUp()
        (self.dir / "lines.jsonl").write_text('{"text": "a cat"}\n' * 40)
        subprocess.run(["gzip", "-k", "lines.jsonl"], cwd=self.dir, check=True)
        (self.dir / "one.txt").write_text("one document alone")
        (self.dir / "out").mkdir()
        (self.dir / "big.txt").write_text("a text that goes on and on\n%\n" * 200000)
        self.up()
        self.submit("--follow", "--set", "training.train_iters=120")

    def on_terminal(self, words, columns):
        """Exit code and all that the terminal got."""
        master, slave = pty.openpty()
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        env = {k: v for k, v in self.env.items() if k != "NO_COLOR"} | {"TERM": "xterm"}
        child = subprocess.Popen([str(BIN / "mtctl"), *words], stdin=slave, stdout=slave, stderr=slave, env=env, cwd=self.dir,
                                 start_new_session=True)
        os.close(slave)
        got = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the last of its ends is closed
                break
            got += part
        os.close(master)
        return child.wait(30), without_waiting(got.decode().replace("\r\n", "\n"))

    def test_what_is_printed_once(self):
        for typed, code, out, err in TYPED:
            for width in (0, *WIDTHS):
                line, out_here, err_here = (text.replace("{W}", str(width)) for text in (typed, out, err))
                with self.subTest(f"mtctl {line}", columns=width):
                    if not width:
                        done = self.mtctl(*shlex.split(line), check=False)
                        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                        self.said(out_here, done.stdout)
                        self.said(err_here, done.stderr)
                        self.assertNotIn("\x1b", done.stdout + done.stderr)
                        continue
                    got, text = self.on_terminal(shlex.split(line), width)
                    self.assertEqual(got, code, text)
                    plain = STYLE.sub("", text)
                    for pattern in filter(None, (out_here, err_here)):
                        self.assertRegex(plain, pattern)

    def said(self, pattern, text):
        if pattern == NOTHING:
            self.assertEqual(text, "")
        else:
            self.assertRegex(text, pattern)

    def test_what_is_drawn_fits(self):
        for typed, code, words in DRAWN:
            for width in WIDTHS:
                line = typed.replace("{W}", str(width))
                with self.subTest(f"mtctl {line}", columns=width):
                    got, text = self.on_terminal(shlex.split(line), width)
                    self.assertEqual(got, code, text)
                    self.assertRegex(STYLE.sub("", text), "(?s)" + words.replace("{W}", str(width)))
                    # Lines that are drawn over each other end in "erase to the end"; a longer one would wrap and stay.
                    drawn = [STYLE.sub("", part) for part in re.findall(r"\r([^\r\n]*?)\x1b\[K", text)]
                    if typed.startswith("plot"):
                        drawn = STYLE.sub("", text).splitlines()
                    self.assertTrue(drawn or "follow" in typed or "attach" in typed, text)
                    self.assertLessEqual(max(map(len, drawn), default=0), width, drawn)

    def test_a_cluster_comes_and_goes(self):
        for width in WIDTHS:
            code, text = self.on_terminal(["dev", "down", "--purge", "--yes"], width)
            self.assertEqual((code, "removed" in text and "checkpoints stay" in text), (0, True), text)
            code, text = self.on_terminal(["get", "jobs"], width)
            self.assertEqual((code, "mtctl dev up" in text), (UNREACHED, True), text)
            code, text = self.on_terminal(["dev", "up", "--cpu-slots", "1", "--gpus", "none"], width)
            self.assertEqual((code, "stop it with: mtctl dev down" in text), (0, True), text)
