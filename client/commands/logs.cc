// `mtctl logs`: prints the last lines of ranks' logs and, with -f, new ones; or what a job that
// reads a checkpoint has written.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
#include "client/commands/output_reader.h"
#include "client/session/interrupt.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

struct LogsArgs {
  std::string job;
  std::vector<int> ranks;
  int lines = 100;
  bool follow = false;
  bool raw = false;
  bool text = false;
};

// Prefixes each line with "[rank] " where several ranks are shown. A terminal gets cleaned text:
// what a rank has printed, a data set or a library may have chosen.
void Print(const v1::LogChunk& chunk, bool prefix, bool raw) {
  const std::string data = raw ? chunk.data() : base::CleanText(chunk.data());
  if (!prefix) {
    std::fwrite(data.data(), 1, data.size(), stdout);
  } else {
    size_t begin = 0;
    while (begin < data.size()) {
      const size_t end = std::min(data.find('\n', begin), data.size());
      std::printf("[%d] %.*s\n", chunk.rank(), static_cast<int>(end - begin), data.data() + begin);
      begin = end + 1;
    }
  }
  std::fflush(stdout);
}

// What a job of kind generate or eval has written.
ExitCode RunOutput(const LogsArgs& args, const Api& api, const GlobalOptions& options) {
  OutputReader reader(api, MakeJobRequest(options, args.job).job(),
                      args.raw || ::isatty(STDOUT_FILENO) != 1 ? nullptr : &base::CleanText);
  StreamStopper stopper;
  const InterruptScope scope(&stopper);
  const Status status = reader.Read(args.follow, &stopper);
  if (InterruptScope::Interrupted()) return kExitInterrupted;
  if (!reader.write_error().ok()) return Complain(reader.write_error(), kExitIo);
  if (!status.ok()) return Complain(status);
  if (reader.error().empty()) return kExitOk;
  std::fprintf(stderr, "mtctl: %s\n", base::CleanText(reader.error()).c_str());
  return kExitIo;
}

ExitCode RunLogs(const LogsArgs& args, const GlobalOptions& options) {
  const ExitCode refused = RefuseFormat(
      options, "logs",
      "leave -o out, --raw is as the ranks wrote it; for programs: TailLogs, docs/api.md");
  if (refused != kExitOk) return refused;
  auto api = ConnectApi(options);
  if (!api.ok()) return Complain(api.status());
  if (args.text) return RunOutput(args, **api, options);
  v1::TailLogsRequest request;
  *request.mutable_job() = MakeJobRequest(options, args.job).job();
  for (const int rank : args.ranks) request.add_ranks(rank);
  request.set_lines(args.lines);
  request.set_follow(args.follow);
  const bool raw = args.raw || ::isatty(STDOUT_FILENO) != 1;
  std::string error;
  StreamStopper stopper;
  const InterruptScope scope(&stopper);
  const Status status = (*api)->TailLogs(request, &stopper, [&](const v1::LogChunk& chunk) {
    if (chunk.dropped() > 0) {
      std::fprintf(stderr, "mtctl: rank %d: %lld chunks left out, this program read too slowly\n",
                   chunk.rank(), static_cast<long long>(chunk.dropped()));
    }
    Print(chunk, args.ranks.size() > 1, raw);
    if (!chunk.error().empty()) error = fmt::format("rank {}: {}", chunk.rank(), chunk.error());
    return true;
  });
  if (InterruptScope::Interrupted()) return kExitInterrupted;
  if (!status.ok()) return Complain(status);
  if (error.empty()) return kExitOk;
  std::fprintf(stderr, "mtctl: %s\n", base::CleanText(error).c_str());
  return kExitIo;
}

}  // namespace

void AddLogs(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand("logs", "Logs of a job's ranks");
  auto args = std::make_shared<LogsArgs>();
  command->add_option("job", args->job, "Name or uid")->required();
  auto* ranks =
      command->add_option("--ranks", args->ranks, "World ranks, comma-separated (default 0)")
          ->delimiter(',');
  auto* lines = command->add_option("--lines", args->lines, "Last lines to begin with")
                    ->check(CLI::Range(1, 100000))
                    ->capture_default_str();
  command
      ->add_flag("--text", args->text,
                 "What a job of kind generate or eval has written, from its beginning, and no log")
      ->excludes(ranks)
      ->excludes(lines);
  command->add_flag("-f,--follow", args->follow, "Go on with what is new until the job ends");
  command->add_flag("--raw", args->raw,
                    "On a terminal too, as the ranks wrote them: with colours, and with whatever "
                    "else controls it");
  command->callback([=] { *context.run = [=] { return RunLogs(*args, *context.options); }; });
}

}  // namespace mt::client
