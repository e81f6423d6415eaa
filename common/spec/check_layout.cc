// The mesh of ranks: derives the sizes that are left to auto, then checks their product and that
// every dimension split by tensor or context parallelism is divisible.
#include <numeric>

#include "common/base/math.h"
#include "common/spec/complete.h"
#include "common/spec/number.h"
#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

constexpr int64_t kMaxSlots = int64_t{1} << 20;

int64_t ModelRanks(const v1::Parallel& parallel) {
  return SaturatingProduct(SaturatingProduct(parallel.tensor(), parallel.pipeline()),
                           parallel.context());
}

void CompleteMesh(const CheckArgs& args) {
  v1::Parallel& parallel = *args.job->mutable_parallel();
  v1::Placement& placement = *args.job->mutable_placement();
  FaultList& faults = *args.faults;
  const int64_t model_ranks = ModelRanks(parallel);
  if (!parallel.has_data() && placement.has_slots() && placement.slots() % model_ranks != 0) {
    faults.Add("placement.slots",
               fmt::format(
                   "{} is not a multiple of tensor {} x pipeline {} x context {} = {}; nearest: {}",
                   placement.slots(), parallel.tensor(), parallel.pipeline(), parallel.context(),
                   model_ranks, NearestMultiples(placement.slots(), model_ranks)));
    return;
  }
  if (!parallel.has_data())
    parallel.set_data(placement.has_slots() ? placement.slots() / model_ranks : 1);
  const int64_t world = SaturatingProduct(model_ranks, parallel.data());
  if (world > kMaxSlots) {
    faults.Add("parallel",
               fmt::format("the product of its sizes is more than {} slots", kMaxSlots));
  } else if (placement.has_slots() && placement.slots() != world) {
    faults.Add("placement.slots",
               fmt::format("is {}, but tensor {} x pipeline {} x context {} x data {} = {}; leave "
                           "slots or data to auto",
                           placement.slots(), parallel.tensor(), parallel.pipeline(),
                           parallel.context(), parallel.data(), world));
  } else {
    placement.set_slots(world);
  }
}

// A dimension that tensor parallelism splits.
struct Cut {
  std::string_view path;
  int64_t value;  // 0: missing, which is reported already
};

// Tensor parallel sizes nearest to the requested one that divide all split dimensions.
std::string NearestTensor(int64_t tensor, const std::vector<Cut>& cuts) {
  int64_t common = 0;
  for (const Cut& cut : cuts) common = std::gcd(common, cut.value);
  return NearestDivisors(tensor, common);
}

void CheckTensor(const CheckArgs& args) {
  const v1::Model& model = args.job->model();
  v1::Parallel& parallel = *args.job->mutable_parallel();
  const int64_t tensor = parallel.tensor();
  if (!parallel.has_sequence_parallel()) parallel.set_sequence_parallel(tensor > 1);
  if (parallel.sequence_parallel() && tensor == 1 &&
      args.faults->Clean({"parallel.sequence_parallel"})) {
    args.faults->Add("parallel.sequence_parallel",
                     "needs ranks that share the sequence, but parallel.tensor is 1; use auto or "
                     "tensor 2 or more");
  }
  std::vector<Cut> cuts = {{"model.heads", model.heads()},
                           {"model.kv_heads", model.kv_heads()},
                           {"model.ffn_size", model.ffn_size()}};
  if (parallel.sequence_parallel()) cuts.push_back({"model.seq_length", model.seq_length()});
  for (const Cut& cut : cuts) {
    if (cut.value == 0 || cut.value % tensor == 0 || !args.faults->Clean({cut.path})) continue;
    args.faults->Add(std::string(cut.path),
                     fmt::format("{} is not a multiple of parallel.tensor {}; nearest: {}, or "
                                 "tensor {}",
                                 cut.value, tensor, NearestMultiples(cut.value, tensor),
                                 NearestTensor(tensor, cuts)));
  }
}

void CheckContext(const CheckArgs& args) {
  const int64_t context = args.job->parallel().context();
  const int64_t seq = args.job->model().seq_length();
  if (context == 1 || seq % (2 * context) == 0 || !args.faults->Clean({"model.seq_length"})) return;
  args.faults->Add("model.seq_length",
                   fmt::format("{} is not a multiple of 2 x parallel.context {}; nearest: {}", seq,
                               context, NearestMultiples(seq, 2 * context)));
}

void CompleteOverlap(v1::Parallel::Overlap* overlap) {
  if (!overlap->has_grad_reduce()) overlap->set_grad_reduce(true);
  if (!overlap->has_param_gather()) overlap->set_param_gather(true);
  if (!overlap->has_pipeline()) overlap->set_pipeline(true);
}

}  // namespace

bool MeshIsClean(const FaultList& faults) {
  return faults.Clean({"parallel.tensor", "parallel.pipeline", "parallel.context",
                       "parallel.expert", "parallel.data", "placement.slots"});
}

void CompleteLayout(const CheckArgs& args) {
  if (MeshIsClean(*args.faults)) CompleteMesh(args);
  if (args.faults->Clean({"parallel.tensor", "parallel.context"})) {
    CheckTensor(args);
    CheckContext(args);
  }
  CompleteOverlap(args.job->mutable_parallel()->mutable_overlap());
}

}  // namespace mt::spec
