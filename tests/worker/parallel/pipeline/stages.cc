// Each stage is a thread with its own links and executor; a barrier keeps all groups alive until
// every stage is done.
#include "tests/worker/parallel/pipeline/stages.h"

#include <barrier>
#include <thread>

#include "common/layout/mesh.h"
#include "tests/worker/parallel/pipeline/fake_work.h"
#include "tests/worker/parallel/pipeline/inline_device.h"

namespace mt::parallel {
namespace {

Status CheckDone(const FakeWork& work, const Schedule& pass) {
  for (const auto& [forwards, backwards] : work.done()) {
    if (forwards == pass.microbatches && backwards == (pass.forward_only ? 0 : pass.microbatches)) {
      continue;
    }
    return base::Internal("{} forwards and {} backwards of {}", forwards, backwards,
                          pass.microbatches);
  }
  return OkStatus();
}

Status RunStage(const StagesArgs& args, int stage, FakeWork* work, Executor* executor) {
  for (const Schedule* pass : args.passes) {
    work->BeginPass(*pass);
    RETURN_IF_ERROR(executor->Run(*pass));
    RETURN_IF_ERROR(CheckDone(*work, *pass));
    if (args.after_pass) args.after_pass(stage, *executor);
  }
  return OkStatus();
}

// One stage's life. `all_done` waits for the others: a group that ends takes its messages with it.
Status LiveStage(const StagesArgs& args, int stage, const std::function<void()>& all_done) {
  InlineDevice device;
  Executor* running = nullptr;
  // Outlives the links, whose threads may still be at its buffers when a pass has failed.
  FakeWork work({.schedule = args.training,
                 .stage = stage,
                 .seed = args.seed * 64 + static_cast<uint64_t>(stage),
                 .max_delay_us = args.max_delay_us,
                 .is_empty = args.is_empty,
                 .early_gradient = args.early_gradient,
                 .inject = [&](const Action& action) {
                   return args.inject ? args.inject(stage, action, *running) : OkStatus();
                 }});
  const layout::Mesh mesh = layout::Mesh::Create({.pp = args.training->stages}).value();
  auto links = CreateLinks(&args.factory(stage), mesh, stage, args.training->chunks,
                           {.device = &device, .overlap = args.overlap});
  Status status = links.status();
  if (links.ok()) {
    const auto stream = device.CreateStream(kernels::StreamPriority::kLow);
    Executor executor({.stage = stage,
                       .work = &work,
                       .stream = stream.get(),
                       .links = &*links,
                       .clock = base::Clock::Real(),
                       .on_wait = {}});
    running = &executor;
    status = RunStage(args, stage, &work, &executor);
  }
  all_done();
  return status;
}

}  // namespace

std::vector<Status> RunStages(const StagesArgs& args) {
  const int stages = args.training->stages;
  std::vector<Status> results(static_cast<size_t>(stages));
  std::barrier all_done(stages);
  std::vector<std::thread> threads;
  for (int stage = 0; stage < stages; ++stage) {
    threads.emplace_back([&, stage] {
      results[static_cast<size_t>(stage)] =
          LiveStage(args, stage, [&] { all_done.arrive_and_wait(); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace mt::parallel
