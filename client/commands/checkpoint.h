// The subcommands of `mtctl checkpoint` on checkpoints that this machine can read; the coordinator
// is asked only where a job is named (checkpoint_place.h). Each function adds its own to
// `checkpoint`.
#pragma once

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "client/commands/commands.h"

namespace mt::client {

void AddCheckpointList(CLI::App* checkpoint, const CommandContext& context);
void AddCheckpointInspect(CLI::App* checkpoint, const CommandContext& context);
void AddCheckpointVerify(CLI::App* checkpoint, const CommandContext& context);
void AddCheckpointDiff(CLI::App* checkpoint, const CommandContext& context);
// pin, unpin, untag, delete
void AddCheckpointKeeping(CLI::App* checkpoint, const CommandContext& context);
void AddCheckpointCopy(CLI::App* checkpoint, const CommandContext& context);
void AddCheckpointExport(CLI::App* checkpoint, const CommandContext& context);
void AddCheckpointImport(CLI::App* checkpoint, const CommandContext& context);

// Help of an argument that is one checkpoint, and of one that may be their directory, too.
inline constexpr char kCheckpointHelp[] =
    "A checkpoint's folder, .../step-00001200-e0003, or JOB (its newest), JOB:STEP, JOB:TAG";
inline constexpr char kDirectoryHelp[] =
    "A job's checkpoint directory or one checkpoint's folder, or JOB, JOB:STEP, JOB:TAG";

// A real for programs: what JSON cannot say is a text ("nan", "inf").
inline nlohmann::ordered_json RealTree(double value) {
  if (std::isfinite(value)) return value;
  return fmt::format("{}", value);
}

}  // namespace mt::client
