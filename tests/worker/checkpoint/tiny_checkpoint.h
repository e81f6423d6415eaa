// The smallest checkpoint, for tests of folders and of what lies beside a manifest.
#pragma once

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "worker/checkpoint/writer.h"

namespace mt::checkpoint {

// Saves one number as this step and epoch of a directory, by a run with this id.
inline void SaveTiny(const std::string& directory, int64_t step, int64_t epoch,
                     const std::string& run = {}, bool spoiled = false) {
  const double value = 1;
  SaveArgs args;
  args.directory = directory;
  args.manifest.step = step;
  args.manifest.epoch = epoch;
  args.manifest.run = run;
  args.manifest.spec_json = "{}";
  args.manifest.spoiled = spoiled;
  args.slices = {{.key = "weights/w",
                  .dtype = kernels::DType::kF64,
                  .global_shape = {1},
                  .offset = {0},
                  .shape = {1},
                  .data = &value}};
  const auto saved = SaveCheckpoint(args);
  ASSERT_TRUE(saved.ok()) << saved.status();
}

}  // namespace mt::checkpoint
