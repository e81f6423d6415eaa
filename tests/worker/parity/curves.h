// Short training runs in a given layout, as curves that can be compared: ranks as threads of the
// test, or as processes over Gloo. The models are small but divisible like large ones: 8 layers,
// heads and groups divisible by 4, a padded vocabulary.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/v1/job.pb.h"
#include "tests/worker/parity/layouts.h"
#include "tests/worker/train/train_rig.h"

namespace mt::parity {

inline constexpr int kSteps = 20;

struct Point {
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  int64_t tokens = 0;
  int64_t consumed_samples = 0;
  double model_flops = 0;
  bool operator==(const Point&) const = default;
};

struct Evaluation {
  int64_t step = 0;
  double loss = 0;
  int64_t tokens = 0;
  bool operator==(const Evaluation&) const = default;
};

struct Curve {
  std::vector<Point> steps;
  std::vector<Evaluation> evals;
  bool operator==(const Curve&) const = default;  // to the last bit
};

// The largest relative differences that are let pass.
struct Bounds {
  double loss = 0;
  double grad_norm = 0;
};
// Of fp64 and fp32 over 20 steps (worker/parallel/README.md).
Bounds BoundsOf(std::string_view precision);

// Reports every step and evaluation that lies further apart.
void ExpectClose(const Curve& got, const Curve& want, const Bounds& bounds);

// Steps and evaluations in a metrics file of mt-rank; a last line that was cut off is left out.
Curve CurveOfLines(const std::string& lines);

// The job file that all runs start from.
std::string JobText(Family family);

// Token files in a folder of their own; runs leave their files beside them.
class Runner {
 public:
  Runner();

  // The curve of rank 0. Reports a run that fails or ends early.
  Curve Run(const Layout& layout, std::string_view precision,
            const std::vector<std::string>& more = {});
  // The same by threads whatever the layout says, each with a device of this world that queues its
  // calls (kernels/async) and that the engine treats as this kind; without a world, with a CPU.
  // `sharing`: what a rank's device shares with the others.
  struct Devices {
    kernels::async::AsyncWorld* world = nullptr;
    kernels::DeviceKind kind = kernels::DeviceKind::kCpu;
    std::function<kernels::async::Sharing(int rank)> sharing;
    bool shard_products = false;  // forward's, always (model::ShardProducts)
  };
  Curve RunOnDevices(const Layout& layout, std::string_view precision, const Devices& devices,
                     const std::vector<std::string>& more = {});
  // The same model, batches and precision on one rank.
  Curve RunAlone(const Layout& layout, std::string_view precision,
                 const std::vector<std::string>& more = {});

  // Reports a chunk with layers whose gradients are cut into fewer than three buckets: little of
  // what is done by bucket would be tried.
  void ExpectBuckets(const Layout& layout);

  // Completed and resolved for threads of this process.
  static megatrain::v1::JobSpec JobOf(Family family, const std::vector<std::string>& overrides);
  const std::string& root() const { return dir_.path(); }

 private:
  Curve RunThreads(const megatrain::v1::JobSpec& job, const Devices& devices) const;
  Curve RunProcesses(Family family, const std::vector<std::string>& overrides, int world);

  train::TempDir dir_;
  int num_runs_ = 0;
};

}  // namespace mt::parity
