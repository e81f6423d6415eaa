// A checkpoint has a sentence of its own; every other verb shares one.
#include "client/output/operation_text.h"

#include <fmt/format.h>

#include "client/output/format.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/types.pb.h"

namespace mt::client {
namespace {

std::string CheckpointText(const megatrain::v1::CheckpointInfo& checkpoint, bool wide) {
  std::string text = fmt::format("step {}, {}, {}, {:.2f} s", checkpoint.step(),
                                 base::CleanLine(checkpoint.path()),
                                 FormatBytes(checkpoint.bytes()), checkpoint.seconds());
  if (!checkpoint.label().tag().empty())
    text += ", tag " + base::CleanLine(checkpoint.label().tag());
  if (wide) {
    text += fmt::format(", {} tokens, stall {:.2f} s, {}", checkpoint.tokens(),
                        checkpoint.stall_seconds(), base::CleanLine(checkpoint.digest()));
  }
  return text;
}

}  // namespace

std::string OperationText(const megatrain::v1::Operation& operation, const std::string& job,
                          bool wide) {
  const std::string verb = base::CleanLine(operation.verb());
  if (!operation.done()) {
    return fmt::format("{} of {} accepted: {}\n", verb, job, base::CleanLine(operation.name()));
  }
  if (operation.has_checkpoint() && verb == "checkpoint") {
    return fmt::format("checkpoint of {}: {}\n", job, CheckpointText(operation.checkpoint(), wide));
  }
  std::string text =
      fmt::format("{} of {}: {}\n", verb, job,
                  operation.result().empty() ? "done" : base::CleanLine(operation.result()));
  if (operation.has_checkpoint()) {
    text += fmt::format("saved: {}\n", CheckpointText(operation.checkpoint(), wide));
  }
  return text;
}

}  // namespace mt::client
