// One of several tensor ranks as a process of its own, whose gathers and sums go by copies over
// real GPUs, several ranks on one GPU included:
//
//   mt_tensor_member FOLDER INDEX SIZE GPU MIB ROUNDS
//
// FOLDER: where the ranks meet. GPU: its number. MIB: of a gathered tensor. ROUNDS: each a gather,
// a sum of shards by its terms and one over whole rows, in fp32 and in bf16, begun on a lane and
// finished, whose results are compared with what must come out; 0: for ever.
//
// Prints "running" after the first round and, where they come to an end, how fast they were.
// SIGUSR1 aborts the group, as an agent's word does where a rank has died. The last line is the
// status it ends with; exits with 0.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/module.h"
#include "worker/comm/copies/copy_factory.h"
#include "worker/comm/file_store.h"
#include "worker/comm/gloo/gloo_factory.h"
#include "worker/comm/shm/shm_factory.h"
#include "worker/memory/memory.h"
#include "worker/parallel/tensor_parallel.h"

namespace mt::parallel {
namespace {

using kernels::DType;
using kernels::Tensor;

constexpr int64_t kColumns = 1024;

struct Options {
  std::string folder;
  int index = 0, size = 0, gpu = 0;
  int64_t mib = 0;
  int64_t rounds = 0;  // 0: no end
};

void Print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

// Aborts the group upon SIGUSR1.
class Leaver {
 public:
  Leaver(comm::ProcessGroup* group, const sigset_t& leave)
      : thread_([group, leave] {
          int number = 0;
          sigwait(&leave, &number);
          group->Abort("this rank leaves");
        }) {}
  ~Leaver() {
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }
  Leaver(const Leaver&) = delete;
  Leaver& operator=(const Leaver&) = delete;

 private:
  std::thread thread_;
};

// The tensors of a rank, [T, kColumns] but for the sum [R, kColumns] of it.
class Rounds {
 public:
  Rounds(const Options& options, kernels::Backend* backend, comm::ProcessGroup* group)
      : options_(options),
        backend_(backend),
        group_(group),
        stream_(backend->device().CreateStream(kernels::StreamPriority::kLow)),
        rows_((options.mib << 20) / kColumns / int64_t{sizeof(float)} / options.size),
        cut_(group, true, group),
        uncut_(group, false, group) {
    cut_.RunBeside(&backend->device());
    uncut_.RunBeside(&backend->device());
    plan_.ShareWithPeers();
    const int64_t bytes = whole_rows() * kColumns * int64_t{sizeof(float)};
    for (memory::Block* block : {&x_, &partial_, &scratch_})
      *block = plan_.Reserve(memory::Kind::kWorkspace, bytes);
    wrong_ = plan_.Reserve(memory::Kind::kWorkspace, 2 * sizeof(double));
    cut_.routes().Plan(&plan_, bytes);
  }

  Status Share() {
    ASSIGN_OR_RETURN(memory_,
                     memory::Memory::Allocate(backend_->device(), plan_, int64_t{1} << 40));
    RETURN_IF_ERROR(cut_.routes().Share(*memory_));
    if (cut_.routes().has_copies()) return OkStatus();
    return base::Unavailable("the ranks do not share their memory");
  }
  Status Run() {
    const base::MonotonicTime begin = base::Clock::Real()->Now();
    for (int64_t round = 0; options_.rounds == 0 || round < options_.rounds; ++round) {
      for (const DType dtype : {DType::kF32, DType::kBf16}) RunOnce(round, dtype);
      // A few rounds are enqueued before the host waits.
      if (round > 0 && round % 4 != 0 && round + 1 != options_.rounds) continue;
      RETURN_IF_ERROR(Verdict());
      if (round == 0) Print("running");
    }
    const std::chrono::duration<double> seconds = base::Clock::Real()->Now() - begin;
    Print(fmt::format("{} rounds in {:.2f} s", options_.rounds, seconds.count()));
    return OkStatus();
  }
  kernels::Stream& stream() { return *stream_; }

 private:
  int64_t whole_rows() const { return rows_ * options_.size; }
  Tensor At(const memory::Block& block, DType dtype, int64_t rows) const {
    return {memory_->Data(block), dtype, {rows, kColumns}};
  }
  // Small enough for either type to hold the sum of all ranks' exactly.
  static double Value(int rank, int shard, int64_t round) {
    return static_cast<double>(1 + rank + 4 * shard + 16 * (round % 3));
  }
  void Fill(const Tensor& whole, int rank, int64_t round) {
    for (int shard = 0; shard < options_.size; ++shard)
      backend_->vector().Fill(*stream_, whole.Rows(shard * rows_, rows_),
                              Value(rank, shard, round));
  }
  double SumOf(int shard, int64_t round) const {
    double sum = 0;
    for (int rank = 0; rank < options_.size; ++rank) sum += Value(rank, shard, round);
    return sum;
  }
  // Adds what differs to wrong_.
  void Check(const Tensor& got, double want) {
    const Tensor differs = At(scratch_, DType::kF32, got.shape[0]);
    const Tensor wide = got.dtype == DType::kF32 ? got : differs;
    if (got.dtype != DType::kF32) backend_->vector().Cast(*stream_, differs, got);
    // x - want, where the negative is made apart: Fill and AddTo are all there is.
    const Tensor minus = At(minus_at(), DType::kF32, got.shape[0]);
    backend_->vector().Fill(*stream_, minus, -want);
    backend_->vector().AddTo(*stream_, minus, wide);
    backend_->update().SquareSum(
        *stream_, {.gradient = minus, .out = {memory_->Data(wrong_), DType::kF64, {2}}});
  }
  // Read by nobody while results are checked: the partial, or x, whichever is not.
  const memory::Block& minus_at() const { return checking_x_ ? partial_ : x_; }

  void RunOnce(int64_t round, DType dtype) {
    const Tensor x = At(x_, dtype, whole_rows()), partial = At(partial_, dtype, whole_rows());
    const int me = options_.index;
    const Tensor own = x.Rows(me * rows_, rows_);
    backend_->vector().Fill(*stream_, own, Value(me, me, round));
    auto pending = cut_.StartGather(*stream_, own, x);
    cut_.Finish(*stream_, pending);
    checking_x_ = true;
    for (int shard = 0; shard < options_.size; ++shard)
      Check(x.Rows(shard * rows_, rows_), Value(shard, shard, round));
    Fill(partial, me, round);
    pending = cut_.StartReduce(*stream_, partial, partial.Rows(me * rows_, rows_));
    const kernels::Partials terms = cut_.FinishSum(*stream_, pending);
    const Tensor sum = partial.Rows(me * rows_, rows_);
    backend_->vector().SumPartials(*stream_, sum, terms);
    checking_x_ = false;
    Check(sum, SumOf(me, round));
    Fill(partial, me, round);
    pending = uncut_.StartReduce(*stream_, partial, {});
    uncut_.FinishSum(*stream_, pending);
    for (int shard = 0; shard < options_.size; ++shard)
      Check(partial.Rows(shard * rows_, rows_), SumOf(shard, round));
  }
  Status Verdict() {
    std::array<double, 2> wrong = {};
    backend_->device().Copy(*stream_, wrong.data(), memory_->Data(wrong_), sizeof(wrong));
    stream_->Synchronize();
    RETURN_IF_ERROR(group_->status());
    if (wrong[0] == 0 && wrong[1] == 0) return OkStatus();
    return base::DataLoss("rank {}: results differ by {} squared, {} values are none",
                          options_.index, wrong[0], wrong[1]);
  }

  const Options options_;
  kernels::Backend* const backend_;
  comm::ProcessGroup* const group_;
  const std::unique_ptr<kernels::Stream> stream_;
  const int64_t rows_;  // of a shard
  memory::MemoryPlan plan_;
  memory::Block x_, partial_, scratch_, wrong_;
  std::unique_ptr<memory::Memory> memory_;
  TensorParallel cut_, uncut_;
  bool checking_x_ = false;
};

Status Main(const Options& options, const sigset_t& leave) {
  ASSIGN_OR_RETURN(const auto backend, kernels::cuda::LoadCudaBackend({.device = options.gpu}));
  comm::FileStore store(options.folder);
  ASSIGN_OR_RETURN(const auto tcp, comm::MakeGlooFactory(&store, {}));
  const auto host = comm::MakeShmFactory(&store, {}, tcp.get());
  const auto copies = comm::MakeCopyFactory({.host = host.get(),
                                             .otherwise = nullptr,
                                             .device = &backend->device(),
                                             .vector = &backend->vector(),
                                             .config = {}});
  comm::GroupSpec spec{.name = "members", .my_index = options.index, .own_kind = true};
  for (int rank = 0; rank < options.size; ++rank) spec.members.push_back(rank);
  ASSIGN_OR_RETURN(const auto group, copies->Create(spec));
  if (group == nullptr) return base::Unavailable("the ranks' GPUs do not reach each other");
  Rounds rounds(options, backend.get(), group.get());
  RETURN_IF_ERROR(rounds.Share());
  std::optional<Leaver> leaver;
  leaver.emplace(group.get(), leave);
  const Status status = rounds.Run();
  if (!status.ok()) {
    group->Abort("this rank has failed");
    rounds.stream().Synchronize();  // whatever waited has been let go
  }
  group->LetGo();
  leaver.reset();
  return status;
}

std::optional<Options> Parse(const std::vector<std::string>& arguments) {
  if (arguments.size() != 6) return std::nullopt;
  Options options{.folder = arguments[0],
                  .index = std::atoi(arguments[1].c_str()),
                  .size = std::atoi(arguments[2].c_str()),
                  .gpu = std::atoi(arguments[3].c_str()),
                  .mib = std::atoll(arguments[4].c_str()),
                  .rounds = std::atoll(arguments[5].c_str())};
  if (options.size < 2 || options.size > 4 || options.mib < 1) return std::nullopt;
  return options;
}

}  // namespace
}  // namespace mt::parallel

int main(int argc, char** argv) {
  const auto options = mt::parallel::Parse({argv + 1, argv + argc});
  if (!options) {
    std::fputs("usage: mt_tensor_member FOLDER INDEX SIZE GPU MIB ROUNDS\n", stderr);
    return 2;
  }
  // Before any thread is made: all of them leave the signal to the one that waits for it.
  sigset_t leave;
  sigemptyset(&leave);
  sigaddset(&leave, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &leave, nullptr);
  const mt::Status status = mt::parallel::Main(*options, leave);
  mt::parallel::Print(std::string(status.ToString()));
  return 0;
}
