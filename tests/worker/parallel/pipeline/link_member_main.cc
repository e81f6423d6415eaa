// One stage of a pipeline as a process of its own, whose links and executor are the real ones and
// whose chunks make parcels of known values, so that each parcel that arrives is checked whole:
//
//   mt_link_member FOLDER STAGE STAGES DEVICE LINKS SCHEDULE MIB PASSES
//
// FOLDER: where the stages meet. DEVICE: "cpu" or the number of a GPU. LINKS: "any" as a job would
// make them, or "nccl" on GPUs. SCHEDULE: gpipe, 1f1b, interleaved. MIB: of a parcel. PASSES: a
// forward and backward of 4 microbatches a stage and an evaluation each; 0: for ever.
//
// Prints "running" after the first pass and, where the passes come to an end, what it has sent.
// SIGUSR1 aborts the links, as an agent's word does where a rank has died. The last line is the
// status it ends with; exits with 0.
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/module.h"
#include "worker/comm/file_store.h"
#include "worker/comm/gloo/gloo_factory.h"
#include "worker/comm/nccl/nccl_factory.h"
#include "worker/comm/nccl/nccl_library.h"
#include "worker/comm/shm/shm_factory.h"
#include "worker/parallel/pipeline/edges.h"
#include "worker/parallel/pipeline/executor.h"
#include "worker/parallel/pipeline/stream_link.h"
#include "worker/parallel/schedule/generate.h"

namespace mt::parallel {
namespace {

using kernels::DType;
using kernels::Tensor;

struct Options {
  std::string folder;
  int stage = 0, stages = 0;
  std::optional<int> gpu;  // nullopt: the CPU
  bool over_nccl = false;
  ScheduleKind kind = ScheduleKind::kOneFOneB;
  int64_t mib = 0;
  int64_t passes = 0;  // 0: no end
};

void Print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

// A parcel is f32 and of one value, which tells pass, microbatch and how far it has come. All of
// them lie in one piece of memory.
class MemberWork final : public ChunkWork {
 public:
  MemberWork(const Schedule& training, int stage, kernels::Backend* backend,
             kernels::Stream* stream, int64_t mib)
      : stage_(stage), backend_(backend), stream_(stream), elements_(mib << 18) {
    const std::vector<int>& slots = training.slots[static_cast<size_t>(stage)];
    int64_t count = 1;  // the scratch
    for (const int of_chunk : slots) count += 4 * of_chunk;
    memory_ = backend->device().Allocate(count * Bytes() + kSums, kernels::MemoryKind::kShared);
    scratch_ = Next();
    for (const int of_chunk : slots) {
      slots_.emplace_back();
      for (int i = 0; i < of_chunk; ++i) slots_.back().push_back({Next(), Next(), Next(), Next()});
    }
    wrong_ = {static_cast<std::byte*>(memory_->data()) + count * Bytes(), DType::kF64, {2}};
    backend->device().Zero(*stream, wrong_.data, kSums);
  }

  void BeginPass(const Schedule& pass) {
    pass_ = pass;
    ++number_;
  }
  Status Forward(const Action& action) override {
    const Parcels& own = At(action.chunk, action.slot);
    const int position = pass_.position(stage_, action.chunk);
    if (position == 0) backend_->vector().Fill(*stream_, own[0], Base(action));
    Check(own[0], Base(action) + position);
    const bool last = position == pass_.num_positions() - 1;
    if (!last) Make(own[1], own[0], 1);
    if (last && !pass_.forward_only) backend_->vector().Fill(*stream_, own[3], -Base(action) - 1);
    return OkStatus();
  }
  Status Backward(const Action& action) override {
    const Parcels& own = At(action.chunk, action.slot);
    const int position = pass_.position(stage_, action.chunk);
    Check(own[0], Base(action) + position);  // kept since its forward
    const int behind = pass_.num_positions() - 1 - position;
    if (behind == 0) return OkStatus();
    Check(own[2], -Base(action) - behind);
    Make(own[3], own[2], -1);
    return OkStatus();
  }
  Tensor Input(int chunk, int slot) override { return At(chunk, slot)[0]; }
  Tensor Output(int chunk, int slot) override { return At(chunk, slot)[1]; }
  Tensor OutputGrad(int chunk, int slot) override { return At(chunk, slot)[2]; }
  Tensor InputGrad(int chunk, int slot) override { return At(chunk, slot)[3]; }

  // Waits for the stream. kDataLoss: something arrived that was not what it should be.
  Status Verdict() {
    std::array<double, 2> wrong = {};
    backend_->device().Copy(*stream_, wrong.data(), wrong_.data, kSums);
    stream_->Synchronize();
    if (wrong[0] == 0 && wrong[1] == 0) return OkStatus();
    return base::DataLoss("stage {}: parcels differ by {} squared, {} values are none", stage_,
                          wrong[0], wrong[1]);
  }
  int64_t Bytes() const { return elements_ * int64_t{sizeof(float)}; }

 private:
  using Parcels = std::array<Tensor, 4>;  // input, output, output's gradient, input's gradient
  static constexpr int64_t kSums = 2 * sizeof(double);

  Tensor Next() {
    void* const at = static_cast<std::byte*>(memory_->data()) + num_made_++ * Bytes();
    return {at, DType::kF32, {elements_}};
  }
  Parcels& At(int chunk, int slot) {
    return slots_.at(static_cast<size_t>(chunk)).at(static_cast<size_t>(slot));
  }
  // Small enough for f32 to be exact.
  double Base(const Action& action) const {
    return static_cast<double>(1000 * (number_ % 1000) + 8 * action.microbatch);
  }
  void Make(const Tensor& to, const Tensor& from, double more) {
    backend_->vector().Fill(*stream_, to, more);
    backend_->vector().AddTo(*stream_, to, from);
  }
  void Check(const Tensor& got, double want) {
    Make(scratch_, got, -want);
    backend_->update().SquareSum(*stream_, {.gradient = scratch_, .out = wrong_});
  }

  const int stage_;
  kernels::Backend* const backend_;
  kernels::Stream* const stream_;
  const int64_t elements_;
  std::unique_ptr<kernels::DeviceBuffer> memory_;
  int64_t num_made_ = 0;
  Tensor scratch_, wrong_;
  std::vector<std::vector<Parcels>> slots_;  // [chunk][slot]
  Schedule pass_;
  int64_t number_ = 0;
};

// The pipe into which SIGUSR1 writes: threads that libraries made before main do not block it.
std::array<int, 2> g_leave = {-1, -1};

void WriteLeave(int signal) {
  const char word = signal == 0 ? 'n' : 'y';
  [[maybe_unused]] const ssize_t written = ::write(g_leave[1], &word, sizeof(word));
}

// Aborts the links upon SIGUSR1.
class Leaver {
 public:
  explicit Leaver(StageLinks* links)
      : thread_([this, links] {
          char word = 'n';
          [[maybe_unused]] const ssize_t got = ::read(g_leave[0], &word, sizeof(word));
          if (word != 'y') return;
          told_ = true;
          links->Abort("this stage leaves");
        }) {}
  ~Leaver() {
    WriteLeave(0);
    thread_.join();
  }
  Leaver(const Leaver&) = delete;
  Leaver& operator=(const Leaver&) = delete;

  bool told() const { return told_; }

 private:
  std::atomic<bool> told_ = false;
  std::thread thread_;  // last: it uses the above
};

// Between GPUs that could write each other's memory as well.
StatusOr<StageLinks> LinksOverNccl(comm::GroupFactory* nccl, const layout::Mesh& mesh,
                                   const Options& options, int chunks, kernels::Device* device) {
  StageLinks links;
  for (const Edge& edge : EdgesOf(mesh, options.stage, chunks)) {
    const bool activation = edge.kind == EdgeKind::kActivation;
    ASSIGN_OR_RETURN(auto group, nccl->Create(edge.spec));
    if (edge.outgoing) {
      auto sender = std::make_unique<StreamSender>(std::move(group), device);
      RETURN_IF_ERROR(sender->WarmUp());
      links.made.push_back(sender.get());
      (activation ? links.activation_out : links.gradient_out) = std::move(sender);
    } else {
      auto receiver = std::make_unique<StreamReceiver>(std::move(group), device);
      RETURN_IF_ERROR(receiver->WarmUp());
      links.made.push_back(receiver.get());
      (activation ? links.activation_in : links.gradient_in) = std::move(receiver);
    }
  }
  return links;
}

Status StatusOf(const StageLinks& links) {
  for (const LinkEnd* end :
       std::initializer_list<const LinkEnd*>{links.activation_in.get(), links.activation_out.get(),
                                             links.gradient_in.get(), links.gradient_out.get()}) {
    if (end != nullptr) RETURN_IF_ERROR(end->status());
  }
  return OkStatus();
}

// Four passes are enqueued before the host waits.
Status RunPasses(const Options& options, const Schedule& training, StageLinks* links,
                 MemberWork* work, kernels::Stream* stream) {
  constexpr int64_t kInFlight = 4;
  const Schedule evaluation = ForwardOnly(training, options.stages + 1);
  Executor executor({.stage = options.stage,
                     .work = work,
                     .stream = stream,
                     .links = links,
                     .clock = base::Clock::Real(),
                     .on_wait = {}});
  for (int64_t pass = 0; options.passes == 0 || pass < options.passes; ++pass) {
    for (const Schedule* each : {&training, &evaluation}) {
      work->BeginPass(*each);
      RETURN_IF_ERROR(executor.Run(*each));
    }
    if (pass > 0 && pass % kInFlight != 0) continue;
    const Status verdict = work->Verdict();
    RETURN_IF_ERROR(StatusOf(*links));  // what a broken link left in the buffers is void
    RETURN_IF_ERROR(verdict);
    if (pass == 0) Print("running");
  }
  const Status verdict = work->Verdict();
  RETURN_IF_ERROR(StatusOf(*links));
  return verdict;
}

int64_t BytesSent(const StageLinks& links) {
  int64_t bytes = 0;
  for (const Sender* sender : {links.activation_out.get(), links.gradient_out.get()}) {
    if (sender == nullptr) continue;
    bytes += sender->Stats().ops[static_cast<size_t>(comm::CommOp::kSend)].payload_bytes;
  }
  return bytes;
}

// `all`: a group of all stages.
Status RunStage(const Options& options, const Schedule& training, StageLinks* links,
                kernels::Backend* backend, comm::ProcessGroup* all) {
  const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
  MemberWork work(training, options.stage, backend, stream.get(), options.mib);
  std::optional<Leaver> leaver(links);
  const base::MonotonicTime begin = base::Clock::Real()->Now();
  Status status = RunPasses(options, training, links, &work, stream.get());
  const double seconds = std::chrono::duration<double>(base::Clock::Real()->Now() - begin).count();
  if (status.ok()) {
    const auto sent = static_cast<double>(BytesSent(*links));
    Print(fmt::format("{} passes, {:.2f} GB sent in {:.1f} s, {:.1f} GB/s", options.passes,
                      sent / 1e9, seconds, sent / 1e9 / seconds));
    status = all->Barrier(*stream);  // what was sent has been received
  } else {
    links->Abort("this stage has failed");
    stream->Synchronize();  // whatever waited has been let go
    // Links are aborted one after the other: the peer of the first may have ended the next before.
    if (status.code() == absl::StatusCode::kUnavailable && leaver->told())
      status = StatusOf(*links);
  }
  links->Close();
  leaver.reset();
  links->Free();  // before the memory that they use
  return status;
}

Status Main(const Options& options) {
  std::unique_ptr<kernels::Backend> backend;
  if (options.gpu) {
    ASSIGN_OR_RETURN(backend, kernels::cuda::LoadCudaBackend({.device = *options.gpu}));
  } else {
    ASSIGN_OR_RETURN(backend, kernels::cpu::MakeCpuBackend({}));
  }
  kernels::Device& device = backend->device();
  comm::FileStore store(options.folder);
  ASSIGN_OR_RETURN(const auto tcp, comm::MakeGlooFactory(&store, {}));
  const auto host = comm::MakeShmFactory(&store, {}, tcp.get());
  std::unique_ptr<comm::GroupFactory> nccl;
  if (options.gpu) {
    ASSIGN_OR_RETURN(const comm::NcclLibrary* library, comm::LoadNccl());
    nccl = comm::MakeNcclFactory(&store, {}, library, &device);
  }
  comm::GroupSpec everybody{.name = "members", .my_index = options.stage};
  for (int stage = 0; stage < options.stages; ++stage) everybody.members.push_back(stage);
  ASSIGN_OR_RETURN(const auto all, host->Create(everybody));
  ScheduleRequest request{.kind = options.kind,
                          .stages = options.stages,
                          .microbatches = 4 * options.stages,
                          .chunks = options.kind == ScheduleKind::kInterleaved ? 2 : 1};
  ASSIGN_OR_RETURN(const Schedule training, GenerateSchedule(request));
  ASSIGN_OR_RETURN(const layout::Mesh mesh, layout::Mesh::Create({.pp = options.stages}));
  StageLinks links;
  if (options.over_nccl) {
    ASSIGN_OR_RETURN(links, LinksOverNccl(nccl.get(), mesh, options, request.chunks, &device));
  } else {
    ASSIGN_OR_RETURN(links, CreateLinks(host.get(), mesh, options.stage, request.chunks,
                                        {.device = &device, .on_device = nccl.get()}));
  }
  return RunStage(options, training, &links, backend.get(), all.get());
}

std::optional<Options> Parse(const std::vector<std::string>& arguments) {
  if (arguments.size() != 8) return std::nullopt;
  Options options{.folder = arguments[0],
                  .stage = std::atoi(arguments[1].c_str()),
                  .stages = std::atoi(arguments[2].c_str()),
                  .over_nccl = arguments[4] == "nccl",
                  .mib = std::atoll(arguments[6].c_str()),
                  .passes = std::atoll(arguments[7].c_str())};
  if (arguments[3] != "cpu") options.gpu = std::atoi(arguments[3].c_str());
  for (const ScheduleKind kind :
       {ScheduleKind::kGPipe, ScheduleKind::kOneFOneB, ScheduleKind::kInterleaved}) {
    if (Name(kind) == arguments[5]) options.kind = kind;
  }
  const bool known = Name(options.kind) == arguments[5] &&
                     (options.over_nccl ? options.gpu.has_value() : arguments[4] == "any");
  if (!known || options.stages < 2 || options.mib < 1) return std::nullopt;
  return options;
}

}  // namespace
}  // namespace mt::parallel

int main(int argc, char** argv) {
  const auto options = mt::parallel::Parse({argv + 1, argv + argc});
  if (!options) {
    std::fputs(
        "usage: mt_link_member FOLDER STAGE STAGES cpu|GPU any|nccl gpipe|1f1b|interleaved MIB "
        "PASSES\n",
        stderr);
    return 2;
  }
  if (::pipe(mt::parallel::g_leave.data()) != 0) return 1;
  std::signal(SIGUSR1, mt::parallel::WriteLeave);
  const mt::Status status = mt::parallel::Main(*options);
  mt::parallel::Print(std::string(status.ToString()));
  return 0;
}
