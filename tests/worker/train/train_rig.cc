// Each rank of a job is a thread with a CPU backend of its own; they meet in a ThreadsHub.
#include "tests/worker/train/train_rig.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/spec/derived.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "kernels/async/async_device.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/compute_threads.h"
#include "tests/worker/async/async_group.h"
#include "worker/comm/call_check.h"
#include "worker/comm/copies/copy_factory.h"
#include "worker/comm/threads/hub.h"
#include "worker/data/indexed_dataset_writer.h"

namespace mt::train {

using megatrain::v1::JobSpec;

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "mt-train-XXXXXX").string();
  CHECK(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}
TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void WriteTokens(const std::string& prefix, int documents, int bad_document) {
  auto writer = data::IndexedDatasetWriter::Create(prefix, data::TokenType::kU16).value();
  uint32_t state = 1;
  for (int d = 0; d < documents; ++d) {
    std::vector<int32_t> tokens;
    const int length = 20 + (d * 7) % 40;
    for (int i = 0; i < length; ++i) {
      state = state * 1664525U + 1013904223U;
      tokens.push_back(static_cast<int32_t>(97 + (i * (1 + d % 3) + (state >> 28) / 8) % 26));
    }
    tokens.back() = d == bad_document ? 999 : 256;
    ASSERT_TRUE(writer->AddSequence(tokens).ok());
    writer->EndDocument();
  }
  ASSERT_TRUE(writer->Finish().ok());
}

JobSpec JobFromText(std::string_view text, const std::vector<std::string>& overrides) {
  JobSpec job;
  spec::Faults faults = spec::LoadJob(text, overrides, {}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  faults = spec::ResolveForSlots({}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return job;
}

JobSpec TinyJob(const std::vector<std::string>& overrides) {
  constexpr const char* kText = R"(
name: tiny
model: {layers: 2, hidden_size: 16, heads: 2, seq_length: 16, hidden_dropout: 0.1,
        attention_dropout: 0.1}
data: {path: [text], split: "90,10,0", tokenizer: {type: byte}}
parallel: {data: 1}
training: {micro_batch_size: 2, global_batch_size: 8, train_iters: 20, precision: fp64}
optimizer: {lr: 1e-3, min_lr: 1e-4, weight_decay: 0.1, clip_grad: 1.0}
checkpoint: {at_end: false}
placement: {device: cpu, threads_per_rank: 1}
)";
  return JobFromText(kText, overrides);
}

std::vector<std::string> CubeLayout() {
  return {"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2", "parallel.zero_stage=1",
          "parallel.bucket_size=1024"};
}

std::optional<Command> Script::Poll() {
  ++polls_;
  for (const auto& [poll, command] : commands_) {
    if (poll == polls_) return command;
  }
  return std::nullopt;
}

namespace {

// What a rank computes and communicates with.
struct RankParts {
  std::unique_ptr<kernels::Backend> cpu;       // unless all share one
  std::unique_ptr<kernels::Backend> backend;   // over it, in a world
  std::unique_ptr<comm::GroupFactory> copies;  // of replicas that share memory
  std::unique_ptr<comm::GroupFactory> checked, checked_copies;
  std::unique_ptr<parallel::RankGroups> groups;
};

// Of groups; with a world those of the device differ.
struct Factories {
  explicit Factories(const RunOptions& options) {
    config.op_timeout = options.op_timeout;
    // Beside the world, whose hosts wait for none of its calls.
    calls = std::make_unique<comm::ThreadsHub>(config);
    if (options.world == nullptr) {
      host = std::make_unique<comm::ThreadsHub>(config);
      return;
    }
    comm::AsyncHub::Args args{.world = options.world, .send_window = 0, .config = config};
    device = std::make_unique<comm::AsyncHub>(args);
    args.on_host = true;
    args.send_window = comm::ProcessGroup::kSendWindow;
    host = std::make_unique<comm::AsyncHub>(args);
  }
  comm::CommConfig config;
  std::unique_ptr<comm::GroupFactory> host, device, calls;
};

kernels::Backend* MakeBackend(const RunOptions& options, int rank, RankParts* parts) {
  if (options.backend != nullptr) return options.backend;
  parts->cpu = kernels::cpu::MakeCpuBackend({.num_threads = ComputeThreads()}).value();
  if (options.world == nullptr) return parts->cpu.get();
  parts->backend = kernels::async::MakeAsyncBackend(
      {.cpu = parts->cpu.get(),
       .world = options.world,
       .rank = rank,
       .kind = options.async_kind,
       .sharing = options.sharing ? options.sharing(rank) : kernels::async::Sharing::kNone});
  return parts->backend.get();
}

void RunRank(const JobSpec& job, const RunOptions& options, Factories* factories, int rank,
             RankParts* parts, RankOutcome* out) {
  kernels::Backend* const backend = MakeBackend(options, rank, parts);
  if (options.sharing && options.world != nullptr) {
    parts->copies = comm::MakeCopyFactory({.host = factories->host.get(),
                                           .otherwise = factories->device.get(),
                                           .device = &backend->device(),
                                           .vector = &backend->vector(),
                                           .watched = false});
  }
  comm::GroupFactory* on_device = factories->device.get();
  comm::GroupFactory* over_copies = parts->copies.get();
  const auto check = [&](comm::GroupFactory** factory, std::unique_ptr<comm::GroupFactory>* over) {
    if (!options.checked_calls || *factory == nullptr) return;
    *over = comm::MakeCheckedFactory(*factory, factories->calls.get(), factories->config);
    *factory = over->get();
  };
  check(&on_device, &parts->checked);
  check(&over_copies, &parts->checked_copies);
  parts->groups = parallel::RankGroups::CreateForJob(job, rank, factories->host.get(),
                                                     &backend->device(), on_device, over_copies)
                      .value();
  TrainArgs args{.job = &job,
                 .data_root = base::JoinPath(options.root, "data"),
                 .checkpoint_root = base::JoinPath(options.root, "checkpoints"),
                 .make_checkpoint_root = true,
                 .cache_root = base::JoinPath(options.root, "cache"),
                 .groups = parts->groups.get(),
                 .backend = backend,
                 .observer = &out->seen,
                 .commands = rank == 0 ? options.commands : nullptr,
                 .clock = options.clock,
                 .memory_limit_bytes = options.memory_limit_bytes};
  if (options.adjust) options.adjust(rank, &args);
  auto trainer = Trainer::Create(args);
  out->created = trainer.ok();
  if (!trainer.ok()) {
    out->result.status = trainer.status();
    return;
  }
  out->result = (*trainer)->Run();
  out->last_mark = (*trainer)->LastMark();
}

}  // namespace

std::vector<RankOutcome> RunJob(const JobSpec& job, const RunOptions& options) {
  const auto size = static_cast<size_t>(spec::WorldSize(job));
  std::vector<RankOutcome> outcomes(size);
  Factories factories(options);
  // Groups outlive every rank's run: their destruction would tell peers what the trainer must.
  std::vector<RankParts> parts(size);
  const auto run = [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    RunRank(job, options, &factories, rank, &parts[r], &outcomes[r]);
  };
  if (options.world != nullptr) {
    options.world->Run(static_cast<int>(size), run);
    // Side by side: members wait until all have compared their calls.
    std::vector<std::thread> ends;
    for (RankParts& rank : parts) ends.emplace_back([&rank] { rank.groups.reset(); });
    for (std::thread& end : ends) end.join();
    return outcomes;
  }
  std::vector<std::thread> threads;
  for (size_t r = 0; r < size; ++r) threads.emplace_back(run, static_cast<int>(r));
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

void TrainTest::SetUp() {
  ASSERT_TRUE(base::MakeDirs(base::JoinPath(dir_.path(), "data")).ok());
  WriteTokens(base::JoinPath(dir_.path(), "data/text"), 200);
}

std::vector<RankOutcome> TrainTest::Run(std::vector<std::string> overrides, Commands scripted) {
  overrides.insert(overrides.begin(), layout_.begin(), layout_.end());
  Script commands(std::move(scripted));
  return RunJob(TinyJob(overrides), {.root = dir_.path(),
                                     .commands = &commands,
                                     .clock = clock_,
                                     .op_timeout = op_timeout_,
                                     .adjust = [this](int rank, TrainArgs* args) {
                                       args->idle_interval = std::chrono::milliseconds(0);
                                       if (adjust_) adjust_(rank, args);
                                     }});
}

void TrainTest::ExpectClean(const std::vector<RankOutcome>& outcomes, int64_t last_step) {
  for (const RankOutcome& rank : outcomes) {
    EXPECT_TRUE(rank.result.status.ok()) << rank.result.status;
    EXPECT_EQ(rank.result.last_step, last_step);
  }
}

std::vector<checkpoint::CheckpointId> TrainTest::OnDisk(const std::string& directory) const {
  return checkpoint::ListCheckpoints(dir_.path() + "/checkpoints/" + directory).value();
}

std::vector<int64_t> TrainTest::StepsOnDisk() const {
  std::vector<int64_t> steps;
  for (const checkpoint::CheckpointId& id : OnDisk()) steps.push_back(id.step);
  return steps;
}

double SecondsIn(const StepRecord& step, report::StepPhase phase) {
  const auto found = step.phase_seconds().find(std::string(Name(phase)));
  return found == step.phase_seconds().end() ? 0 : found->second;
}

memory::BytesByKind MemoryOf(const StepRecord& step) {
  memory::BytesByKind bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto found =
        step.memory_bytes().find(std::string(memory::Name(static_cast<memory::Kind>(i))));
    if (found != step.memory_bytes().end()) bytes[i] = found->second;
  }
  return bytes;
}

void ExpectSameCurve(const std::vector<StepRecord>& got, const std::vector<StepRecord>& want,
                     double loss_tolerance, double norm_tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].step(), want[i].step());
    EXPECT_EQ(got[i].tokens(), want[i].tokens());
    EXPECT_LE(std::abs(got[i].loss() - want[i].loss()), loss_tolerance * want[i].loss())
        << "step " << want[i].step();
    EXPECT_EQ(got[i].has_bits_per_byte(), want[i].has_bits_per_byte());
    EXPECT_LE(std::abs(got[i].bits_per_byte() - want[i].bits_per_byte()),
              loss_tolerance * want[i].bits_per_byte())
        << "step " << want[i].step();
    EXPECT_LE(std::abs(got[i].grad_norm() - want[i].grad_norm()),
              norm_tolerance * want[i].grad_norm())
        << "step " << want[i].step();
  }
}

void ExpectEqualCurve(const std::vector<StepRecord>& got, const std::vector<StepRecord>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].step(), want[i].step());
    EXPECT_EQ(got[i].loss(), want[i].loss()) << "step " << want[i].step();
    EXPECT_EQ(got[i].grad_norm(), want[i].grad_norm()) << "step " << want[i].step();
    EXPECT_EQ(got[i].learning_rate(), want[i].learning_rate()) << "step " << want[i].step();
    EXPECT_EQ(got[i].consumed_samples(), want[i].consumed_samples()) << "step " << want[i].step();
  }
}

}  // namespace mt::train
