#!/usr/bin/env bash
# prometheus-cpp 1.0.1 (Debian 12): Histogram::Observe(NaN) counts into the first bucket, as if it were below the smallest bound, and so
# into all; the sum is NaN for the rest of the process. Counter::Increment(NaN) makes a counter NaN for good,
# Increment(-1) is dropped without a word. One loss that is no number therefore looks like a very good one in histogram_quantile().
# Seen 2026-11-27: buckets 1 and 2, observed 1.5 and NaN: le="1" has 1, le="2" has 2, the sum is nan.
# What follows: what is not finite is dropped before Observe and Increment, and counted elsewhere.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q prometheus-cpp-dev=1.0.1* libprometheus-cpp-core1.0=1.0.1* > download.log 2>&1 || { cat download.log >&2; exit 1; }
for package in ./*.deb; do dpkg -x "$package" root; done
cat > show.cc <<'CPP'
#include <cmath>
#include <cstdio>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>

int main() {
  prometheus::Histogram loss(prometheus::Histogram::BucketBoundaries{1, 2});
  loss.Observe(1.5);
  loss.Observe(std::nan(""));
  const auto seen = loss.Collect().histogram;
  for (const auto& bucket : seen.bucket)
    std::printf("le=%g: %llu\n", bucket.upper_bound, static_cast<unsigned long long>(bucket.cumulative_count));
  std::printf("sum: %f\n", seen.sample_sum);
  prometheus::Counter tokens;
  tokens.Increment(-1);
  std::printf("counter after -1: %f\n", tokens.Value());
  tokens.Increment(std::nan(""));
  tokens.Increment(1);
  std::printf("counter after NaN and 1: %f\n", tokens.Value());
}
CPP
library=$(find root -name 'libprometheus-cpp-core.so.1.0')
g++ -std=c++17 -isystem root/usr/include show.cc "$library" -Wl,-rpath,"$(dirname "$PWD/$library")" -o show
./show | sed 's/-nan/nan/' | tee seen
diff seen - <<'SEEN'
le=1: 1
le=2: 2
le=inf: 2
sum: nan
counter after -1: 0.000000
counter after NaN and 1: nan
SEEN
