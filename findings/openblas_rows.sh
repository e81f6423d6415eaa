#!/usr/bin/env bash
# OpenBLAS 0.3.21 (Debian 12), kernels for Haswell and Zen, one thread: in Y = X W equal rows of X give rows of Y that differ in their last
# bits. A row's bits follow from its place in a group of twelve (6, 6, and a tail by m mod 12), not from its values: the same sequence at
# another place in a batch, or in a batch of another size, has another loss. Other core types (Sandybridge, Nehalem) give equal rows.
# Seen 2026-11-29, 64 columns, 512 terms: 16 equal rows give 3 different ones, 12 and 48 give 2.
# What follows: batches that must give one result for a sequence wherever it stands are cut at multiples of 48 rows, or compared with a
# tolerance.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
grep -qw avx2 /proc/cpuinfo && grep -qw fma /proc/cpuinfo || { echo "this processor cannot execute the kernels for Haswell" >&2; exit 1; }
apt-get download -q libopenblas0-pthread=0.3.21* libopenblas-pthread-dev=0.3.21* libgfortran5 libquadmath0 > download.log 2>&1 || { cat download.log >&2; exit 1; }
for package in ./*.deb; do dpkg -x "$package" root; done
cat > show.c <<'C'
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number of different rows of Y = X W for m equal rows of X. */
static int Different(int m, int n, int k) {
  float *x = malloc(sizeof(float) * m * k), *w = malloc(sizeof(float) * k * n), *y = malloc(sizeof(float) * m * n);
  int count = 0;
  srand(1);
  for (int i = 0; i < k; ++i) x[i] = rand() / (float)RAND_MAX - 0.5f;
  for (int row = 1; row < m; ++row) memcpy(x + row * k, x, sizeof(float) * k);
  for (int i = 0; i < k * n; ++i) w[i] = rand() / (float)RAND_MAX - 0.5f;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, x, k, w, n, 0, y, n);
  for (int row = 0; row < m; ++row) {
    int seen = 0;
    for (int other = 0; other < row && !seen; ++other) seen = memcmp(y + row * n, y + other * n, sizeof(float) * n) == 0;
    count += !seen;
  }
  free(x), free(w), free(y);
  return count;
}

int main() {
  openblas_set_num_threads(1);
  printf("%s: different rows for m 12, 13, 16, 24, 48:", openblas_get_corename());
  for (int i = 0, m[] = {12, 13, 16, 24, 48}; i < 5; ++i) printf(" %d", Different(m[i], 64, 512));
  printf("\n");
}
C
library=$(find "$PWD/root" -name 'libopenblas.so.0' | head -1)
gcc -O1 -isystem "$(dirname "$(find "$PWD/root" -name cblas.h)")" show.c "$(readlink -f "$library")" -Wl,-rpath,"$(dirname "$(readlink -f "$library")"):$PWD/root/usr/lib/x86_64-linux-gnu" -o show 2> gcc.log || { cat gcc.log; exit 1; }
for core in Haswell Zen Sandybridge Nehalem; do OPENBLAS_CORETYPE=$core ./show; done | tee seen
diff seen - <<'SEEN'
Haswell: different rows for m 12, 13, 16, 24, 48: 2 2 3 2 2
Zen: different rows for m 12, 13, 16, 24, 48: 2 2 3 2 2
Sandybridge: different rows for m 12, 13, 16, 24, 48: 1 1 1 1 1
Nehalem: different rows for m 12, 13, 16, 24, 48: 1 1 1 1 1
SEEN
