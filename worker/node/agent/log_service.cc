// A Tail per request, advanced by one timer for all.
#include "worker/node/agent/log_service.h"

#include <optional>
#include <utility>

#include "megatrain/v1/worker.pb.h"
#include "worker/node/process/log_file.h"
#include "worker/node/ranks/job_names.h"

namespace mt::node {

using megatrain::v1::LogRequest;
using megatrain::v1::WorkerMessage;

struct LogService::Tail {
  LogRequest request;
  std::string path;
  Status refused;
  std::optional<LogReader> reader;  // nullopt until the file exists
};

StatusOr<LogReader> LogService::Open(const Tail& tail) {
  RETURN_IF_ERROR(tail.refused);
  if (!tail.request.trace().empty()) return LogReader::OpenWhole(tail.path);
  if (tail.request.output()) return LogReader::OpenAt(tail.path, tail.request.offset());
  return LogReader::OpenTail(tail.path, tail.request.lines());
}

StatusOr<std::string> LogService::PathOf(const LogRequest& request) const {
  RETURN_IF_ERROR(CheckJobNames(request.job_name(), request.job_uid()));
  if (!request.trace().empty())
    return TraceFile(deps_.log_root, request.job_name(), request.job_uid(), request.trace());
  if (!request.output())
    return RankLogFile(deps_.log_root, request.job_name(), request.job_uid(), request.rank());
  if (request.offset() < 0)
    return base::InvalidArgument("an output has no offset {}", request.offset());
  return OutputFile(deps_.log_root, request.job_name(), request.job_uid());
}

LogService::LogService(Deps deps) : deps_(std::move(deps)) {}
LogService::~LogService() { deps_.loop->Cancel(timer_); }

void LogService::OnRequest(const LogRequest& request) {
  auto tail = std::make_unique<Tail>();
  tail->request = request;
  auto path = PathOf(request);
  tail->refused = path.status();
  if (path.ok()) tail->path = *std::move(path);
  if (!Advance(request.request_id(), tail.get())) return;
  tails_[request.request_id()] = std::move(tail);
  if (!polling_) Poll();
}

void LogService::OnCancel(int64_t request_id) { tails_.erase(request_id); }
void LogService::OnDisconnected() { tails_.clear(); }

void LogService::Poll() {
  polling_ = !tails_.empty();
  if (!polling_) return;
  timer_ = deps_.loop->After(deps_.limits.log_poll, [this] {
    std::erase_if(tails_,
                  [this](auto& entry) { return !Advance(entry.first, entry.second.get()); });
    Poll();
  });
}

bool LogService::Advance(int64_t request_id, Tail* tail) {
  // Determined before reading: if the ranks are gone here, the file is complete when it is read.
  const bool whole = !tail->request.trace().empty();
  const bool live = !whole && tail->request.follow() && deps_.is_live(tail->request.job_uid());
  WorkerMessage message;
  message.mutable_log_reply()->set_request_id(request_id);
  auto& chunk = *message.mutable_log_reply()->mutable_chunk();
  chunk.set_rank(tail->request.rank());
  if (!tail->reader) {
    auto opened = Open(*tail);
    if (opened.ok()) {
      tail->reader = std::move(opened).value();
    } else if (live && !absl::IsOutOfRange(opened.status())) {
      return true;  // the rank has not started yet
    } else {
      chunk.set_error(base::Message(opened.status()));
    }
  }
  while (deps_.queued_bytes() < deps_.limits.max_queued_log_bytes) {
    if (!tail->reader) break;
    // Of an output what is there is wanted at once, of a log whole lines.
    const bool output = tail->request.output();
    if (output) chunk.set_offset(tail->reader->offset());
    auto data = tail->reader->Read(/*rest=*/!live || output);
    if (!data.ok()) {
      chunk.set_error(base::Message(data.status()));
      tail->reader.reset();
    } else if (!data->empty()) {
      chunk.set_data(std::move(data).value());
      deps_.send_now(message);
      chunk.clear_data();
    } else if (output && tail->reader->IsReplaced()) {
      // Of the other text nobody has asked for these bytes.
      chunk.set_error(
          "the job was placed again and writes its text anew: ask for it from its "
          "beginning");
      tail->reader.reset();
    } else if (live) {
      return true;
    } else {
      tail->reader.reset();
    }
  }
  if (tail->reader) return true;  // paused: the coordinator is slow
  chunk.set_end(true);
  deps_.send_now(message);
  return false;
}

}  // namespace mt::node
