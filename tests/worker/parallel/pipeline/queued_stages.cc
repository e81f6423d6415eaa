// Ranks live until all have ended: a group that ends takes its messages with it.
#include "tests/worker/parallel/pipeline/queued_stages.h"

#include <initializer_list>
#include <utility>

#include "common/base/check.h"
#include "common/layout/mesh.h"
#include "worker/parallel/pipeline/peer_link.h"

namespace mt::parallel {

using kernels::DType;
using kernels::MemoryKind;
using kernels::Tensor;
using kernels::async::Sharing;

QueuedWork::QueuedWork(const Args& args) : args_(args) {
  for (const int slots : args.training->slots[static_cast<size_t>(args.stage)]) {
    slots_.emplace_back();
    for (int i = 0; i < slots; ++i) {
      slots_.back().push_back({.input = NewTensor(),
                               .output = NewTensor(),
                               .output_grad = NewTensor(),
                               .input_grad = NewTensor()});
    }
  }
}

Tensor QueuedWork::NewTensor() {
  buffers_.push_back(args_.backend->device().Allocate(4 * sizeof(double), MemoryKind::kShared));
  return {buffers_.back()->data(), DType::kF64, {4}};
}

QueuedWork::Slot& QueuedWork::At(int chunk, int slot) {
  return slots_.at(static_cast<size_t>(chunk)).at(static_cast<size_t>(slot));
}

void QueuedWork::BeginPass(const Schedule& pass) {
  pass_ = pass;
  ++pass_number_;
}

double QueuedWork::Activation(const Action& action) const {
  double value = Base(action.microbatch);
  const int own = pass_.position(args_.stage, action.chunk);
  for (int position = 0; position < own; ++position) value += IsEmpty(position) ? 0 : 1;
  return value;
}

double QueuedWork::Gradient(const Action& action) const {
  double value = -Base(action.microbatch);
  const int own = pass_.position(args_.stage, action.chunk);
  for (int position = pass_.num_positions() - 1; position > own; --position)
    value -= IsEmpty(position) ? 0 : 1;
  return value;
}

void QueuedWork::Log(const Tensor& tensor, double expected) {
  logged_.push_back(args_.backend->device().Allocate(sizeof(double), MemoryKind::kDevice));
  args_.backend->device().Copy(*args_.stream, logged_.back()->data(), tensor.data, sizeof(double));
  expected_.push_back(expected);
}

void QueuedWork::Make(const Tensor& to, const Tensor& from, double value) {
  args_.backend->vector().Fill(*args_.stream, to, value);
  args_.backend->vector().AddTo(*args_.stream, to, from);
}

// As a head without layers the last chunk makes its gradient in its forward.
Status QueuedWork::Forward(const Action& action) {
  if (args_.inject) RETURN_IF_ERROR(args_.inject(pass_number_, action));
  const int position = pass_.position(args_.stage, action.chunk);
  const Slot& slot = At(action.chunk, action.slot);
  if (position == 0)
    args_.backend->vector().Fill(*args_.stream, slot.input, Base(action.microbatch));
  Log(slot.input, Activation(action));
  const bool last = position == pass_.num_positions() - 1;
  if (!IsEmpty(position) && !last) Make(slot.output, slot.input, 1);
  if (last && !pass_.forward_only)
    args_.backend->vector().Fill(*args_.stream, slot.input_grad, Gradient(action) - 1);
  return OkStatus();
}

Status QueuedWork::Backward(const Action& action) {
  if (args_.inject) RETURN_IF_ERROR(args_.inject(pass_number_, action));
  const int position = pass_.position(args_.stage, action.chunk);
  const Slot& slot = At(action.chunk, action.slot);
  Log(slot.input, Activation(action));  // kept since its forward
  if (position == pass_.num_positions() - 1) return OkStatus();
  Log(slot.output_grad, Gradient(action));
  if (!IsEmpty(position)) Make(slot.input_grad, slot.output_grad, -1);
  return OkStatus();
}

Tensor QueuedWork::Output(int chunk, int slot) {
  const bool empty = IsEmpty(pass_.position(args_.stage, chunk));
  return empty ? At(chunk, slot).input : At(chunk, slot).output;
}

Tensor QueuedWork::InputGrad(int chunk, int slot) {
  const bool empty = IsEmpty(pass_.position(args_.stage, chunk));
  return empty ? At(chunk, slot).output_grad : At(chunk, slot).input_grad;
}

int QueuedWork::CountMistakes() {
  args_.stream->Synchronize();
  int mistakes = 0;
  for (size_t i = 0; i < expected_.size(); ++i) {
    if (*static_cast<const double*>(logged_[i]->data()) != expected_[i]) ++mistakes;
  }
  return mistakes;
}

QueuedStages::QueuedStages(kernels::async::AsyncWorld* world, kernels::Backend* cpu,
                           QueuedArgs args)
    : world_(world),
      cpu_(cpu),
      args_(std::move(args)),
      host_({.world = world, .on_host = true, .config = {}, .host_of = args_.host_of}),
      device_({.world = world, .send_window = 0, .config = {}}),
      stages_(static_cast<size_t>(args_.training->stages)) {}

std::vector<Status> QueuedStages::Run() {
  std::vector<Status> results(stages_.size());
  const int size = static_cast<int>(stages_.size());
  world_->Run(size, [&](int stage) { results[static_cast<size_t>(stage)] = Open(stage); });
  for (const Status& result : results) {
    if (!result.ok()) return results;
  }
  world_->Run(size, [&](int stage) { results[static_cast<size_t>(stage)] = RunStage(stage); });
  world_->Run(size, [&](int stage) { stages_[static_cast<size_t>(stage)].links.Close(); });
  return results;
}

Status QueuedStages::Open(int stage) {
  Stage& own = stages_[static_cast<size_t>(stage)];
  own.backend = kernels::async::MakeAsyncBackend(
      {.cpu = cpu_, .world = world_, .rank = stage, .sharing = args_.sharing(stage)});
  kernels::Device& device = own.backend->device();
  own.stream = device.CreateStream(kernels::StreamPriority::kLow);
  own.work = std::make_unique<QueuedWork>(QueuedWork::Args{
      .training = args_.training,
      .stage = stage,
      .backend = own.backend.get(),
      .stream = own.stream.get(),
      .is_empty = args_.is_empty,
      .inject = [this, stage](int pass_number, const Action& action) {
        return args_.inject ? args_.inject(stage, pass_number, action) : OkStatus();
      }});
  const layout::Mesh mesh = layout::Mesh::Create({.pp = args_.training->stages}).value();
  ASSIGN_OR_RETURN(own.links, CreateLinks(&host_, mesh, stage, args_.training->chunks,
                                          {.device = &device, .on_device = &device_}));
  return OkStatus();
}

Status QueuedStages::RunPasses(Stage* own, int stage) {
  Executor executor({.stage = stage,
                     .work = own->work.get(),
                     .stream = own->stream.get(),
                     .links = &own->links,
                     .clock = base::Clock::Real(),
                     .on_wait = {}});
  for (const Schedule* pass : args_.passes) {
    own->work->BeginPass(*pass);
    RETURN_IF_ERROR(executor.Run(*pass));
  }
  return OkStatus();
}

Status QueuedStages::RunStage(int stage) {
  Stage& own = stages_[static_cast<size_t>(stage)];
  Status status = RunPasses(&own, stage);
  if (!status.ok()) {
    for (Stage& each : stages_) each.links.Abort("a stage has failed");
    own.stream->Synchronize();
    return status;
  }
  const int mistakes = own.work->CountMistakes();
  if (mistakes == 0) return OkStatus();
  return base::DataLoss("stage {}: {} tensors are not what was made for it", stage, mistakes);
}

int QueuedStages::NumPeer(int stage, int* num_links) const {
  const StageLinks& links = stages_[static_cast<size_t>(stage)].links;
  int num_peer = 0;
  for (LinkEnd* end :
       std::initializer_list<LinkEnd*>{links.activation_in.get(), links.activation_out.get(),
                                       links.gradient_in.get(), links.gradient_out.get()}) {
    if (end == nullptr) continue;
    ++*num_links;
    const bool is_peer =
        dynamic_cast<PeerSender*>(end) != nullptr || dynamic_cast<PeerReceiver*>(end) != nullptr;
    CHECK_EQ(end->shares_memory(), is_peer);
    num_peer += is_peer;
  }
  return num_peer;
}

bool QueuedStages::AllPeer(int stage) const {
  int num_links = 0;
  return NumPeer(stage, &num_links) == num_links && num_links > 0;
}

bool QueuedStages::NonePeer(int stage) const {
  int num_links = 0;
  return NumPeer(stage, &num_links) == 0 && num_links > 0;
}

}  // namespace mt::parallel
