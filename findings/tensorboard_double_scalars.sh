#!/usr/bin/env bash
# TensorBoard 2.21.0: a scalar that is written as a tensor of doubles, or of shape [1], is listed by the slow loader and missing from the
# default one (tensorboard-data-server), without a word in its log. Written as simple_value, or as a float tensor of no dimension, it is in
# both.
# Seen 2026-11-29: of simple_value, float, double, half, int64 and float of shape [1] the default loader lists float and simple_value, the slow
# one all six.
# What follows: event files are written with simple_value, never with the tensor of the type at hand.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill %1 2> /dev/null || true; rm -rf "$folder"' EXIT
python3 -m pip install -q --disable-pip-version-check --target "$folder/site" tensorboard==2.21.0 tensorboard-data-server==0.7.2 "setuptools<81"
export PYTHONPATH=$folder/site
cat > "$folder/write.py" <<'PYTHON'
import sys
import numpy
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util

writer = EventFileWriter(sys.argv[1])
def write(step, **value):
    writer.add_event(event_pb2.Event(wall_time=1000.0 + step, step=step, summary=summary_pb2.Summary(value=[summary_pb2.Summary.Value(**value)])))
kind = summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="scalars"), data_class=1)
for step in range(3):
    write(step, tag="simple_value", simple_value=2.5)
    for tag, array in (("float", numpy.float32(2.5)), ("double", numpy.float64(2.5)), ("half", numpy.float16(2.5)), ("int64", numpy.int64(2)),
                       ("shape_1", numpy.array([2.5], dtype=numpy.float32))):
        write(step, tag=tag, tensor=tensor_util.make_tensor_proto(array), metadata=kind)
writer.close()
PYTHON
python3 "$folder/write.py" "$folder/logs/run"
tags() { # options of tensorboard
  local port
  port=$(python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])')
  python3 -m tensorboard.main --logdir "$folder/logs" --host 127.0.0.1 --port "$port" "$@" > "$folder/log" 2>&1 &
  for _ in $(seq 300); do
    # The file is read when a tag that both loaders know has its last point.
    curl -sf "http://127.0.0.1:$port/data/plugin/scalars/scalars?run=run&tag=float" 2> /dev/null | grep -q '1002' && break
    sleep 0.2
  done
  curl -sf "http://127.0.0.1:$port/data/plugin/scalars/tags" > "$folder/tags"
  kill %1; wait %1 2> /dev/null || true
  python3 -c 'import json, sys; print(*sorted(json.load(open(sys.argv[1]))["run"]))' "$folder/tags"
}
echo "default loader: $(tags)" | tee "$folder/seen"
echo "slow loader: $(tags --load_fast=false)" | tee -a "$folder/seen"
diff "$folder/seen" - <<'SEEN'
default loader: float simple_value
slow loader: double float half int64 shape_1 simple_value
SEEN
