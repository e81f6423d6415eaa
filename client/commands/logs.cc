// `mtctl logs`: prints the last lines of ranks' logs and, with -f, new ones; or what a job that
// reads a checkpoint has written.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"
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

// How many bytes at the end begin a UTF-8 character that goes on in the next piece.
size_t BytesOfHalfCharacter(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte < 0xC0) continue;
    const size_t length = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    return back < length ? back : 0;
  }
  return 0;
}

// What a job of kind generate or eval has written. Asked again where this program was too slow.
ExitCode RunOutput(const LogsArgs& args, const Api& api, const GlobalOptions& options) {
  v1::ReadOutputRequest request;
  *request.mutable_job() = MakeJobRequest(options, args.job).job();
  request.set_follow(args.follow);
  const bool raw = args.raw || ::isatty(STDOUT_FILENO) != 1;
  std::string error, half;
  StreamStopper stopper;
  const InterruptScope scope(&stopper);
  bool behind = true;
  Status status;
  while (behind && status.ok() && !InterruptScope::Interrupted()) {
    behind = false;
    status = OutputsApi(api).Read(request, &stopper, [&](const v1::LogChunk& chunk) {
      behind = chunk.dropped() > 0 && chunk.offset() != request.offset();
      if (behind) return false;
      v1::LogChunk shown = chunk;
      shown.set_data(std::exchange(half, {}) + chunk.data());
      const size_t whole = shown.data().size() - (raw ? 0 : BytesOfHalfCharacter(shown.data()));
      half = shown.data().substr(whole);
      shown.mutable_data()->resize(whole);
      Print(shown, /*prefix=*/false, raw);
      request.set_offset(request.offset() + static_cast<int64_t>(chunk.data().size()));
      error = chunk.error();
      return true;
    });
  }
  if (InterruptScope::Interrupted()) return kExitInterrupted;
  if (!status.ok()) return Complain(status);
  if (error.empty()) return kExitOk;
  std::fprintf(stderr, "mtctl: %s\n", base::CleanText(error).c_str());
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
