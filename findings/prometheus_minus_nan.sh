#!/usr/bin/env bash
# Prometheus 2.42 (Debian 12): one sample "-nan" refuses the whole scrape, so that every other series of the process is lost with it. It is
# what C's and C++'s printf write for 0.0 / 0.0 on x86-64, while "nan" (the same value with the other sign) is taken.
# Seen 2026-11-29: "loss -nan" beside "steps 7" makes up 0 and neither series is there; with "nan" up is 1 and steps is 7.
# What follows: values are written by a function that knows NaN and infinity, and what is not finite is left out.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null || true; wait; rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q prometheus=2.42.0* > download.log 2>&1 || { cat download.log >&2; exit 1; }
dpkg -x prometheus_*.deb root
cat > show.c <<'C'
#include <stdio.h>
int main() {
  volatile double zero = 0;
  printf("loss %f\nsteps 7\n", zero / zero);
}
C
gcc show.c -o show
mkdir bad good
./show > bad/metrics
./show | sed 's/-nan/nan/' > good/metrics
echo "printf of 0.0 / 0.0: $(head -1 bad/metrics)" | tee seen
python3 -m http.server --bind 127.0.0.1 --directory "$folder" 0 > http.log 2>&1 &
until grep -q 'port [1-9]' http.log; do sleep 0.1; done
port=$(grep -o 'port [0-9]*' http.log | cut -d' ' -f2)
own=$(python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])')
cat > prometheus.yml <<YAML
global: {scrape_interval: 1s}
scrape_configs:
- {job_name: bad, metrics_path: /bad/metrics, static_configs: [{targets: ["127.0.0.1:$port"]}]}
- {job_name: good, metrics_path: /good/metrics, static_configs: [{targets: ["127.0.0.1:$port"]}]}
YAML
root/usr/bin/prometheus --config.file=prometheus.yml --storage.tsdb.path=data --web.listen-address="127.0.0.1:$own" > prometheus.log 2>&1 &
ask() { curl -sf "http://127.0.0.1:$own/api/v1/query" --data-urlencode "query=$1" | python3 -c 'import json, sys
for result in sorted(json.load(sys.stdin)["data"]["result"], key=lambda r: r["metric"]["job"]): print(result["metric"]["job"], result["value"][1])'; }
for _ in $(seq 300); do [ "$(ask up 2> /dev/null | wc -l)" = 2 ] && break; sleep 0.2; done
echo "up: $(ask up | paste -sd, -)" | tee -a seen
echo "steps: $(ask steps | paste -sd, -)" | tee -a seen
diff seen - <<'SEEN'
printf of 0.0 / 0.0: loss -nan
up: bad 0,good 1
steps: good 7
SEEN
