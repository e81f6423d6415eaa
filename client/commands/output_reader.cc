// Pieces have the offset of their first byte, so that none is printed twice or left out.
#include "client/commands/output_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

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

}  // namespace

OutputReader::OutputReader(const Api& api, const v1::JobRef& job, Clean clean)
    : api_(api), request_(std::make_unique<v1::ReadOutputRequest>()), clean_(clean) {
  *request_->mutable_job() = job;
}

OutputReader::~OutputReader() = default;

Status OutputReader::Read(bool follow, StreamStopper* stopper) {
  request_->set_follow(follow);
  error_.clear();
  Status status;
  for (bool behind = true; behind && status.ok();) {
    behind = false;
    status = OutputsApi(api_).Read(*request_, stopper, [&](const v1::LogChunk& chunk) {
      behind = chunk.dropped() > 0 && chunk.offset() != request_->offset();
      return !behind && Take(chunk);
    });
  }
  return write_error_.ok() ? status : write_error_;
}

bool OutputReader::Take(const v1::LogChunk& chunk) {
  std::string text = std::exchange(half_, {}) + chunk.data();
  const size_t whole = text.size() - (clean_ == nullptr ? 0 : BytesOfHalfCharacter(text));
  half_ = text.substr(whole);
  text.resize(whole);
  if (clean_ != nullptr) text = clean_(text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    write_error_ = base::ErrnoError(errno, "write to standard output");
    return false;
  }
  if (!text.empty()) in_line_ = !text.ends_with('\n');
  request_->set_offset(request_->offset() + static_cast<int64_t>(chunk.data().size()));
  error_ = chunk.error();
  return true;
}

}  // namespace mt::client
