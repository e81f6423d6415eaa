// Builds the parameters, flat buffers, groups, GradientSync and optimizer of each rank, and gathers
// the weights of all ranks by name and index for comparison.
#include "tests/worker/parallel/sync_rig.h"

#include <bit>
#include <cstring>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/base/ids.h"
#include "kernels/async/async_device.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/worker/async/async_group.h"
#include "tests/worker/parallel/rig_params.h"
#include "worker/comm/copies/copy_factory.h"
#include "worker/comm/threads/hub.h"
#include "worker/params/init.h"

namespace mt::parallel {
namespace {

using kernels::DType;
using kernels::Tensor;
using layout::GroupUse;
using params::ParamId;
using params::ParamSpec;

// Global row-major index of element i of what the rank holds.
int64_t GlobalIndex(const ParamSpec& spec, int64_t i) {
  if (spec.shape.rank() == 1) return spec.begin[0] + i;
  const int64_t columns = spec.stored[1];
  return (spec.begin[0] + i / columns) * spec.shape[1] + spec.begin[1] + i % columns;
}

void SetAt(const Tensor& tensor, int64_t i, double value) {
  if (tensor.dtype == DType::kF64) {
    tensor.Data<double>()[i] = value;
  } else {
    tensor.Data<float>()[i] = static_cast<float>(value);
  }
}

float HalfToFloat(kernels::F16 half) {
  const auto bits = static_cast<uint32_t>(half.bits);
  const uint32_t sign = (bits & 0x8000U) << 16U;
  const uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00U) {
    return std::bit_cast<float>(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13U);
  }
  // Scaling by 2^112 moves the exponent; subnormal halves become normal by it.
  const float value = std::bit_cast<float>(magnitude << 13U) * 0x1p112F;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

}  // namespace

double ValueAt(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype) {
    case DType::kF64:
      return tensor.Data<double>()[i];
    case DType::kF32:
      return static_cast<double>(tensor.Data<float>()[i]);
    case DType::kBf16:
      return static_cast<double>(
          std::bit_cast<float>(static_cast<uint32_t>(tensor.Data<kernels::Bf16>()[i].bits) << 16U));
    case DType::kF16:
      return static_cast<double>(HalfToFloat(tensor.Data<kernels::F16>()[i]));
    default:
      CHECK(false) << kernels::Name(tensor.dtype);
      return 0;
  }
}

double RandomGradient(const Term& term) {
  struct {
    uint64_t name;
    int64_t index, step;
    int32_t replica, tp_rank, stage, zero;
  } key{base::Hash64(term.spec->name),
        term.index,
        term.step,
        term.replica,
        term.tp_rank,
        term.stage,
        0};
  const uint64_t bits =
      base::Hash64(std::string_view(reinterpret_cast<const char*>(&key), sizeof(key)));
  return static_cast<double>(bits >> 11U) * 0x1p-52 - 1.0;
}

kernels::StepConstants RigConstants(const layout::MeshSizes& mesh) {
  return {.max_lr = 1e-3,
          .decay = kernels::DecayKind::kConstant,
          .weight_decay = 0.1,
          .weight_decay_end = 0.1,
          .clip_grad = 1.0,
          .batch_samples = 8,
          .nominal_tokens = 8.0 * mesh.dp};
}

RigRank::RigRank(const RigLayout& layout, const kernels::StepConstants& constants, int world_rank,
                 const RigFactories& factories)
    : layout_(layout),
      constants_(constants),
      axes_(layout::Mesh::Create(layout.mesh).value(), world_rank, /*tied_tables=*/true),
      at_(axes_.at()),
      cpu_(kernels::cpu::MakeCpuBackend({}).value()),
      async_(layout.world == nullptr
                 ? nullptr
                 : kernels::async::MakeAsyncBackend(
                       {.cpu = cpu_.get(),
                        .world = layout.world,
                        .rank = world_rank,
                        .sharing = layout.copies ? kernels::async::Sharing::kAll
                                                 : kernels::async::Sharing::kNone})),
      backend_(async_ == nullptr ? cpu_.get() : async_.get()),
      stream_(backend_->device().CreateStream(kernels::StreamPriority::kLow)),
      scalars_(kernels::InitialStepScalars(constants)) {
  AddRigParams(&registry_, layout.mesh, at_);
  flat_.emplace(params::FlatLayout::Args{
      .registry = &registry_, .dp_size = layout.mesh.dp, .min_bucket_elements = 4096});
  store_.emplace(&registry_, &*flat_, layout.dtype,
                 params::StateShare{.zero_stage = layout.zero_stage,
                                    .dp_rank = at_.dp,
                                    .moments = layout.optimizer.moments()});
  Build(factories);
}

RigRank::~RigRank() {
  try {
    for (const auto& group : groups_) group->LetGo();
  } catch (const kernels::DeviceError&) {  // met by the test already
  }
}

comm::ProcessGroup* RigRank::MakeGroup(GroupUse use, comm::GroupFactory* factory) {
  const std::optional<layout::GroupPlace> place = axes_.PlaceIn(use);
  if (!place) return nullptr;
  groups_.push_back(
      factory->Create({.name = place->name, .members = place->members, .my_index = place->index})
          .value());
  return groups_.back().get();
}

void RigRank::Build(const RigFactories& factories) {
  comm::GroupFactory* const factory = factories.device;
  if (layout_.copies) {
    copies_ = comm::MakeCopyFactory({.host = factories.host,
                                     .otherwise = factory,
                                     .device = &backend_->device(),
                                     .vector = &backend_->vector(),
                                     .watched = false});
  }
  comm::GroupFactory* const over_copies = copies_ == nullptr ? factory : copies_.get();
  const SyncGroups groups{
      .dp_reduce = MakeGroup(GroupUse::kGradients, over_copies),
      .dp_gather = MakeGroup(GroupUse::kWeights, over_copies),
      .tensor = MakeGroup(GroupUse::kTensorControl, factory),
      .tied = MakeGroup(GroupUse::kTied, over_copies),
      .world = MakeGroup(GroupUse::kControl, factory),
  };
  sync_.emplace(GradientSync::Args{.device = &backend_->device(),
                                   .update = &backend_->update(),
                                   .vector = &backend_->vector(),
                                   .store = &*store_,
                                   .routes = RoutesOf(*store_, axes_),
                                   .groups = groups,
                                   .overlap_reduce = layout_.overlap,
                                   .overlap_gather = layout_.overlap});
  memory::MemoryPlan plan;
  if (layout_.copies) plan.ShareWithPeers();
  store_->Plan(&plan);
  sync_->Plan(&plan);
  memory_ = memory::Memory::Allocate(backend_->device(), plan, int64_t{1} << 30).value();
  store_->Bind(*memory_);
  sync_->Bind(*memory_);
  const Status shared = sync_->Share(*memory_);
  CHECK(shared.ok()) << shared;
  optimizer_.emplace(&backend_->update(), &*store_, layout_.optimizer);
  params::InitializeParams(
      *stream_, {.random = &backend_->random(), .vector = &backend_->vector(), .seed = 1234},
      *store_);
}

std::vector<Term> RigRank::TermsOf(const ParamSpec& spec, int64_t step) const {
  const layout::MeshSizes whole = layout_.stands_for.value_or(layout_.mesh);
  const auto range = [](int own_size, int own_rank, int whole_size) {
    return own_size == whole_size ? std::pair(own_rank, own_rank + 1) : std::pair(0, whole_size);
  };
  const auto replicas = range(layout_.mesh.dp, at_.dp, whole.dp);
  auto tensors = range(layout_.mesh.tp, at_.tp, whole.tp);
  if (!IsPartial(spec.name)) tensors = {0, 1};
  auto stages = range(layout_.mesh.pp, at_.pp, whole.pp);
  if (spec.name != kWordEmbedding) stages = {0, 1};
  std::vector<Term> terms;
  for (int r = replicas.first; r < replicas.second; ++r) {
    for (int t = tensors.first; t < tensors.second; ++t) {
      for (int s = stages.first; s < stages.second; ++s) {
        terms.push_back({.spec = &spec, .step = step, .replica = r, .tp_rank = t, .stage = s});
      }
    }
  }
  return terms;
}

void RigRank::FillGradients(int64_t step, const GradientOf& gradient_of, bool with_weights) {
  for (int32_t p = 0; p < static_cast<int32_t>(registry_.size()); ++p) {
    const ParamSpec& spec = registry_[ParamId{p}];
    const Tensor gradient = store_->Grad(ParamId{p});
    const Tensor weight = store_->Weight(ParamId{p});
    std::memset(gradient.data, 0, static_cast<size_t>(gradient.Bytes()));
    std::vector<Term> terms = TermsOf(spec, step);
    const int64_t held = spec.Held().NumElements();
    for (int64_t i = 0; i < held; ++i) {
      const double own = with_weights ? 0.01 * ValueAt(weight, i) : 0;
      double sum = 0;
      for (Term& term : terms) {
        term.index = GlobalIndex(spec, i);
        sum += gradient_of(term) + own;
      }
      SetAt(gradient, i, sum * scalars_.loss_scale);
    }
  }
}

void* RigRank::Kept(std::vector<std::byte> bytes) {
  return kept_.emplace_back(std::move(bytes)).data();
}

void RigRank::EnqueueGradient(ParamId param, int64_t step) {
  const ParamSpec& spec = registry_[param];
  const Tensor gradient = store_->Grad(param);
  Tensor sums = gradient;
  sums.data = Kept(std::vector<std::byte>(static_cast<size_t>(gradient.Bytes())));
  std::vector<Term> terms = TermsOf(spec, step);
  for (int64_t i = 0; i < spec.Held().NumElements(); ++i) {
    double sum = 0;
    for (Term& term : terms) {
      term.index = GlobalIndex(spec, i);
      sum += RandomGradient(term);
    }
    SetAt(sums, i, sum);
  }
  backend_->device().Copy(*stream_, gradient.data, sums.data, gradient.Bytes());
  Tensor forward = store_->Weight(param);
  const auto* const weights = static_cast<const char*>(store_->weights().data);
  forward.data =
      static_cast<char*>(forward_->data()) + (static_cast<const char*>(forward.data) - weights);
  backend_->vector().AddTo(*stream_, gradient, forward);
}

Status RigRank::EnqueueStep(int64_t step) {
  const Tensor weights = store_->weights();
  kernels::Device& device = backend_->device();
  if (forward_ == nullptr)
    forward_ = device.Allocate(weights.Bytes(), kernels::MemoryKind::kDevice);
  for (const int chunk : {0, 1}) {
    RETURN_IF_ERROR(sync_->WaitWeights(*stream_, chunk));
    for (int b = 0; b < flat_->num_buckets(); ++b) {
      if (flat_->bucket(b).chunk != chunk) continue;
      const Tensor read = store_->BucketWeights(b);
      const auto offset = static_cast<char*>(read.data) - static_cast<char*>(weights.data);
      device.Copy(*stream_, static_cast<char*>(forward_->data()) + offset, read.data, read.Bytes());
    }
  }
  device.Zero(*stream_, store_->grads().data, store_->grads().Bytes());
  for (int b = flat_->num_buckets() - 1; b >= 0; --b) {
    for (int32_t p = 0; p < static_cast<int32_t>(registry_.size()); ++p) {
      if (flat_->BucketOf(ParamId{p}) == b) EnqueueGradient(ParamId{p}, step);
    }
    sync_->BucketReady(*stream_, b);
  }
  const kernels::EndOfStep own = OwnSums();
  std::vector<std::byte> bytes(sizeof(own));
  std::memcpy(bytes.data(), &own, sizeof(own));
  device.Copy(*stream_, &vector_, Kept(std::move(bytes)), sizeof(own));
  return CompleteStep();
}

void RigRank::ReadWeights() {
  const Tensor weights = store_->weights();
  backend_->device().Copy(*stream_, forward_->data(), weights.data, weights.Bytes());
}

kernels::EndOfStep RigRank::OwnSums() const {
  const bool has_loss = at_.tp == 0 && at_.pp == layout_.mesh.pp - 1;
  const int replicas = layout_.stands_for.value_or(layout_.mesh).dp / layout_.mesh.dp;
  return {.loss = has_loss ? 1.5 * replicas : 0, .tokens = has_loss ? kTokens * replicas : 0};
}

Status RigRank::FinishStep(double poison) {
  vector_ = OwnSums();
  if (poison != 0) SetAt(store_->grads(), 0, ValueAt(store_->grads(), 0) + poison);
  for (int b = 0; b < flat_->num_buckets(); ++b) sync_->BucketReady(*stream_, b);
  return CompleteStep();
}

Status RigRank::CompleteStep() {
  RETURN_IF_ERROR(sync_->FinishGradients(*stream_, {&vector_.sum_squares, DType::kF64, {2}}));
  RETURN_IF_ERROR(sync_->ReduceEndOfStep(*stream_, {&vector_, DType::kF64, {4}}));
  backend_->update().Advance(*stream_, &scalars_, &vector_, constants_);
  optimizer_->Update(*stream_, &scalars_, &*sync_);
  return sync_->status();
}

Status RigRank::Step(int64_t step, const GradientOf& gradient_of, bool with_weights,
                     double poison) {
  for (const int chunk : {0, 1}) RETURN_IF_ERROR(sync_->WaitWeights(*stream_, chunk));
  FillGradients(step, gradient_of, with_weights);
  return FinishStep(poison);
}

RigMesh::RigMesh(const RigLayout& layout, const kernels::StepConstants& constants)
    : world_(layout.world) {
  const comm::CommConfig config{.op_timeout = std::chrono::seconds(60)};
  if (world_ == nullptr) {
    factory_ = std::make_unique<comm::ThreadsHub>(config);
  } else {
    comm::AsyncHub::Args args{.world = world_, .config = config};
    factory_ = std::make_unique<comm::AsyncHub>(args);
    args.on_host = true;
    host_factory_ = std::make_unique<comm::AsyncHub>(args);
  }
  ranks_.resize(static_cast<size_t>(layout::Mesh::Create(layout.mesh).value().world_size()));
  OnThreads([&](int r) {
    ranks_[static_cast<size_t>(r)] = std::make_unique<RigRank>(
        layout, constants, r, RigFactories{.device = factory_.get(), .host = host_factory_.get()});
  });
}

// Together: a rank whose memory peers use waits for them.
RigMesh::~RigMesh() {
  try {
    OnThreads([this](int r) { ranks_[static_cast<size_t>(r)].reset(); });
  } catch (const kernels::DeviceError&) {  // met by the test already
  }
}

void RigMesh::OnThreads(const std::function<void(int)>& body) {
  if (world_ != nullptr) return world_->Run(size(), body);
  std::vector<std::thread> threads;
  for (int r = 0; r < size(); ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
}

void RigMesh::Run(const std::function<void(RigRank&)>& body) {
  OnThreads([&](int r) { body(rank(r)); });
}

void RigMesh::Train(int64_t steps, const GradientOf& gradient_of, bool with_weights) {
  Run([&](RigRank& rank) {
    for (int64_t step = 0; step < steps; ++step) {
      const Status status = rank.Step(step, gradient_of, with_weights);
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_TRUE(rank.sync().WaitAllWeights(rank.stream()).ok());
  });
}

void RigMesh::TrainEnqueued(int64_t steps) {
  Run([&](RigRank& rank) {
    for (int64_t step = 0; step < steps; ++step) {
      const Status status = rank.EnqueueStep(step);
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_TRUE(rank.sync().WaitAllWeights(rank.stream()).ok());
    rank.ReadWeights();
    rank.stream().Synchronize();
  });
}

std::map<std::string, std::vector<double>> AssembleWeights(RigMesh& mesh) {
  std::map<std::string, std::vector<double>> weights;
  std::map<std::string, std::vector<bool>> seen;
  for (int r = 0; r < mesh.size(); ++r) {
    const RigRank& rank = mesh.rank(r);
    for (int32_t p = 0; p < static_cast<int32_t>(rank.registry().size()); ++p) {
      const ParamSpec& spec = rank.registry()[ParamId{p}];
      const Tensor weight = rank.store().Weight(ParamId{p});
      const auto n = static_cast<size_t>(spec.shape.NumElements());
      std::vector<double>& whole = weights[spec.name];
      whole.resize(n);
      seen[spec.name].resize(n);
      const int64_t held = spec.Held().NumElements();
      for (int64_t i = 0; i < weight.NumElements(); ++i) {
        const double value = ValueAt(weight, i);
        if (i >= held) {
          EXPECT_EQ(value, 0.0) << spec.name << ": a padded row";
          continue;
        }
        const auto at = static_cast<size_t>(GlobalIndex(spec, i));
        if (seen[spec.name][at]) {
          EXPECT_EQ(std::bit_cast<uint64_t>(value), std::bit_cast<uint64_t>(whole[at]))
              << spec.name << "[" << at << "] differs on rank " << r;
        }
        whole[at] = value;
        seen[spec.name][at] = true;
      }
    }
  }
  for (const auto& [name, elements] : seen) {
    for (size_t i = 0; i < elements.size(); ++i)
      EXPECT_TRUE(elements[i]) << name << "[" << i << "]";
  }
  return weights;
}

void ExpectSameBits(RigMesh& a, RigMesh& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (int r = 0; r < a.size(); ++r) {
    const Tensor left = a.rank(r).store().weights();
    const Tensor right = b.rank(r).store().weights();
    ASSERT_EQ(left.Bytes(), right.Bytes());
    EXPECT_EQ(std::memcmp(left.data, right.data, static_cast<size_t>(left.Bytes())), 0)
        << what << ": weights of rank " << r;
    EXPECT_EQ(std::memcmp(&a.rank(r).scalars(), &b.rank(r).scalars(), sizeof(kernels::StepScalars)),
              0)
        << what << ": scalars of rank " << r;
  }
}

}  // namespace mt::parallel
