#!/usr/bin/env bash
# Gloo of 2022-05-18 (Debian 12: libgloo-dev): an allreduce with gloo::max or gloo::min neither keeps a NaN nor leaves it out. Depending on
# the rank that holds it and the element's place in the buffer the result is NaN, or the maximum of only those that were combined after it:
# a larger number that another rank holds is lost as well. All ranks get the same wrong value; sum keeps the NaN.
# Seen 2026-11-29, three ranks that hold 1, 2 and 3, three elements each, rank 1's replaced by NaN: max is 1, 1, NaN (3 is lost), min 1, 1,
# NaN; rank 0's replaced: max is NaN, NaN, 3.
# What follows: whether all values are finite is found by summing (a count, or the values), never by a maximum of them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -q libgloo-dev=0.0~git20220518.5b14351* libgloo0=0.0~git20220518.5b14351* > download.log 2>&1 || { cat download.log >&2; exit 1; }
for package in ./*.deb; do dpkg -x "$package" root; done
cat > show.cc <<'CPP'
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>

using Reduce = void (*)(void*, const void*, const void*, size_t);
constexpr int kRanks = 3;

// What each rank holds after an allreduce of 3 elements per rank, in which this rank holds NaN and rank r of the others r + 1.
std::vector<std::string> AllReduce(Reduce reduce, int nan_rank) {
  gloo::rendezvous::HashStore store;
  std::vector<std::string> seen(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      gloo::transport::tcp::attr attributes("127.0.0.1");
      auto device = gloo::transport::tcp::CreateDevice(attributes);
      auto context = std::make_shared<gloo::rendezvous::Context>(rank, kRanks);
      context->connectFullMesh(store, device);
      std::vector<float> values(kRanks, rank == nan_rank ? std::nanf("") : static_cast<float>(rank + 1));
      gloo::AllreduceOptions options(context);
      options.setOutput(values.data(), values.size());
      options.setReduceFunction(reduce);
      gloo::allreduce(options);
      for (float value : values) seen[rank] += std::isnan(value) ? " nan" : " " + std::to_string(static_cast<int>(value));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return seen;
}

int main() {
  const struct { const char* name; Reduce reduce; } kinds[] = {{"max", gloo::max<float>}, {"min", gloo::min<float>}, {"sum", gloo::sum<float>}};
  for (const auto& kind : kinds) {
    for (int nan_rank = 0; nan_rank < kRanks; ++nan_rank) {
      const auto seen = AllReduce(kind.reduce, nan_rank);
      for (const std::string& other : seen)
        if (other != seen[0]) std::printf("ranks differ: %s, %s\n", seen[0].c_str(), other.c_str());
      std::printf("%s, NaN on rank %d:%s\n", kind.name, nan_rank, seen[0].c_str());
    }
  }
}
CPP
library=$(find "$PWD/root" -name 'libgloo.so.0' | head -1)
g++ -std=c++17 -isystem root/usr/include show.cc "$library" -Wl,-rpath,"$(dirname "$library")" -lpthread -o show
./show | tee seen
diff seen - <<'SEEN'
max, NaN on rank 0: nan nan 3
max, NaN on rank 1: 1 1 nan
max, NaN on rank 2: 2 2 2
min, NaN on rank 0: nan nan 2
min, NaN on rank 1: 1 1 nan
min, NaN on rank 2: 1 1 2
sum, NaN on rank 0: nan nan nan
sum, NaN on rank 1: nan nan nan
sum, NaN on rank 2: nan nan nan
SEEN
