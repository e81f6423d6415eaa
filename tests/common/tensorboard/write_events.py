#!/usr/bin/env python3
"""Writes the event file beside it by PyTorch's SummaryWriter over PyPI's tensorboard, for event_file_test.cc. Outside CI: the file is
committed, for it holds the time of its writing.

    python3 write_events.py    Debian's torch 1.13.0, `pip install tensorboard==2.21.0` of PyPI in PYTHONPATH (2026-11-30)
"""
import shutil
import tempfile
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

folder = Path(tempfile.mkdtemp())
# A run that went back: what the second START says is that steps from 3 on come again.
writer = SummaryWriter(folder, purge_step=3)
for step, loss in ((3, 2.5), (4, 0.0), (5, -1.25), (2**40, 1e-30)):
    writer.add_scalar("lm loss", loss, step, walltime=1764480000.25 + min(step, 6))
writer.add_scalar("grad-norm", float("nan"), 6, walltime=1764480006)
writer.close()
(path,) = folder.iterdir()
shutil.copy(path, Path(__file__).with_name("events.out.tfevents.torch"))
shutil.rmtree(folder)
