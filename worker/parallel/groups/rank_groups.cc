// Which groups a rank is in is common/layout/group_axes.h's to say; here they are made.
#include "worker/parallel/groups/rank_groups.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"

namespace mt::parallel {
namespace {

using layout::GroupUse;

void AddStats(const comm::CommStats& stats, comm::CommStats* sum) {
  for (size_t i = 0; i < sum->ops.size(); ++i) {
    sum->ops[i].num_calls += stats.ops[i].num_calls;
    sum->ops[i].payload_bytes += stats.ops[i].payload_bytes;
    sum->ops[i].seconds += stats.ops[i].seconds;
  }
  sum->inflight_seconds = std::max(sum->inflight_seconds, stats.inflight_seconds);
}

int64_t FreeBytes(kernels::Device* device) {
  const auto memory = device->Memory();
  return memory ? memory->free_bytes : 0;
}

}  // namespace

RankGroups::RankGroups(const Args& args)
    : axes_(args.mesh, args.rank, args.tied_tables), enqueues_(args.device_factory != nullptr) {}

StatusOr<std::unique_ptr<RankGroups>> RankGroups::Create(const Args& args) {
  CHECK(args.factory != nullptr || args.mesh.world_size() == 1);
  std::unique_ptr<RankGroups> groups(new RankGroups(args));
  const Status made = groups->Make(args);
  if (made.ok()) return groups;
  // Peers that are in a group with this rank already must not wait for it.
  groups->Abort("a group of this rank could not be made");
  return made;
}

StatusOr<std::unique_ptr<RankGroups>> RankGroups::CreateForJob(
    const megatrain::v1::JobSpec& job, int rank, comm::GroupFactory* factory,
    kernels::Device* device, comm::GroupFactory* on_device, comm::GroupFactory* over_copies) {
  const auto& parallel = job.parallel();
  ASSIGN_OR_RETURN(const layout::Mesh mesh, layout::Mesh::Create(spec::MeshSizesOf(job)));
  if (rank >= mesh.world_size()) {
    return base::FailedPrecondition("the job is laid out for {} ranks: there is no rank {}",
                                    mesh.world_size(), rank);
  }
  return Create({.mesh = mesh,
                 .rank = rank,
                 .chunks = static_cast<int>(parallel.virtual_stages()),
                 .tied_tables = job.model().tie_embeddings(),
                 .overlap_links = parallel.overlap().pipeline(),
                 .saves_beside = job.checkpoint().async_save(),
                 .decodes = spec::WritesTexts(job),
                 .factory = factory,
                 .device_factory = on_device,
                 .copy_factory = over_copies,
                 .device = device});
}

// Every rank makes its groups in the same order of kinds and has one of each kind, so nobody waits
// in a circle; links have an order of their own.
Status RankGroups::Make(const Args& args) {
  const int64_t free_bytes = enqueues_ ? FreeBytes(args.device) : 0;
  RETURN_IF_ERROR(MakeGroups(args));
  if (enqueues_) communicator_bytes_ = std::max<int64_t>(0, free_bytes - FreeBytes(args.device));
  return OkStatus();
}

Status RankGroups::MakeGroups(const Args& args) {
  comm::GroupFactory* const on_device = enqueues_ ? args.device_factory : args.factory;
  RETURN_IF_ERROR(Add(GroupUse::kWorld, args.factory, &world_));
  if (args.saves_beside) {
    RETURN_IF_ERROR(Add(GroupUse::kCheckpoint, args.factory, &checkpoint_));
  }
  if (enqueues_) {
    RETURN_IF_ERROR(Add(GroupUse::kControl, on_device, &control_));
  } else {
    control_ = world_;
  }
  RETURN_IF_ERROR(MakeDeviceGroups(args, on_device));
  if (axes_.SizeOf(layout::kStageAxes) == 1) return OkStatus();
  ASSIGN_OR_RETURN(links_, CreateLinks(args.factory, axes_.mesh(), rank(), args.chunks,
                                       {.device = args.device,
                                        .overlap = args.overlap_links,
                                        .on_device = args.device_factory}));
  base::MutexLock lock(&mu_);
  links_open_ = true;
  return OkStatus();
}

Status RankGroups::MakeDeviceGroups(const Args& args, comm::GroupFactory* factory) {
  RETURN_IF_ERROR(Add(GroupUse::kTensor, factory, &tp_));
  if (args.copy_factory != nullptr) {
    RETURN_IF_ERROR(Add(GroupUse::kTensorCopies, args.copy_factory, &tp_copies_));
  }
  RETURN_IF_ERROR(Add(GroupUse::kTensorControl, factory, &tp_control_));
  comm::GroupFactory* const copies = args.copy_factory == nullptr ? factory : args.copy_factory;
  RETURN_IF_ERROR(Add(GroupUse::kGradients, copies, &dp_reduce_));
  RETURN_IF_ERROR(Add(GroupUse::kWeights, copies, &dp_gather_));
  RETURN_IF_ERROR(Add(GroupUse::kTied, copies, &tied_));
  if (!args.decodes || axes_.SizeOf(layout::kStageAxes) == 1) return OkStatus();
  return Add(GroupUse::kDecode, factory, &decode_);
}

Status RankGroups::Add(GroupUse use, comm::GroupFactory* factory, comm::ProcessGroup** out) {
  std::optional<layout::GroupPlace> place = axes_.PlaceIn(use);
  if (!place) return OkStatus();
  // What all hosts tell each other is little; how many there are is not bounded.
  const bool words = use == GroupUse::kWorld || use == GroupUse::kCheckpoint;
  ASSIGN_OR_RETURN(std::unique_ptr<comm::ProcessGroup> group,
                   factory->Create({.name = std::move(place->name),
                                    .members = std::move(place->members),
                                    .my_index = place->index,
                                    .words = words,
                                    .own_kind = use == GroupUse::kTensorCopies}));
  if (group == nullptr) return OkStatus();
  *out = group.get();
  groups_.push_back(std::move(group));
  return OkStatus();
}

std::vector<LinkEnd*> RankGroups::Ends() const {
  std::vector<LinkEnd*> ends;
  if (!links_open_) return ends;
  for (LinkEnd* end :
       std::initializer_list<LinkEnd*>{links_.activation_in.get(), links_.activation_out.get(),
                                       links_.gradient_in.get(), links_.gradient_out.get()}) {
    if (end != nullptr) ends.push_back(end);
  }
  return ends;
}

bool RankGroups::shares_memory() const {
  const auto shares = [](const auto& each) { return each->shares_memory(); };
  if (std::any_of(groups_.begin(), groups_.end(), shares)) return true;
  base::MutexLock lock(&mu_);
  const std::vector<LinkEnd*> ends = Ends();
  return std::any_of(ends.begin(), ends.end(), shares);
}

void RankGroups::LetGoOfMemory() {
  try {
    for (const auto& group : groups_) group->LetGo();
  } catch (const kernels::DeviceError& error) {
    log::Warn("groups are left to the device, which has failed", {{"why", error.what()}});
  }
  links_.Close();  // an abort from another thread ends its waits
  {
    base::MutexLock lock(&mu_);
    links_open_ = false;
  }
  links_.Free();
}

void RankGroups::Abort(std::string_view reason) {
  for (const auto& group : groups_) group->Abort(reason);
  base::MutexLock lock(&mu_);
  for (LinkEnd* end : Ends()) end->Abort(reason);
}

Status RankGroups::status() const {
  for (const auto& group : groups_) RETURN_IF_ERROR(group->status());
  base::MutexLock lock(&mu_);
  for (const LinkEnd* end : Ends()) RETURN_IF_ERROR(end->status());
  return OkStatus();
}

Status RankGroups::device_status() const {
  if (!enqueues_) return OkStatus();
  for (const comm::ProcessGroup* group :
       {control_, tp_, tp_copies_, tp_control_, dp_reduce_, dp_gather_, tied_, decode_}) {
    if (group != nullptr) RETURN_IF_ERROR(group->status());
  }
  base::MutexLock lock(&mu_);
  for (const LinkEnd* end : Ends()) RETURN_IF_ERROR(end->status());
  return OkStatus();
}

GroupStats RankGroups::Stats() const {
  GroupStats stats;
  const auto add = [](const comm::ProcessGroup* group, comm::CommStats* sum) {
    if (group != nullptr) AddStats(group->Stats(), sum);
  };
  for (const comm::ProcessGroup* group : {world_, checkpoint_}) add(group, &stats.world);
  if (control_ != world_) add(control_, &stats.world);
  for (const comm::ProcessGroup* group : {tp_, tp_copies_, tp_control_}) add(group, &stats.tp);
  for (const comm::ProcessGroup* group : {dp_reduce_, dp_gather_}) add(group, &stats.dp);
  for (const comm::ProcessGroup* group : {tied_, decode_}) add(group, &stats.pp);
  base::MutexLock lock(&mu_);
  for (const LinkEnd* end : Ends()) AddStats(end->Stats(), &stats.pp);
  return stats;
}

}  // namespace mt::parallel
