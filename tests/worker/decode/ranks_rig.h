// Ranks that decode together, as threads: each has its part of a network's weights as training
// stores them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/worker/model/model_rig.h"
#include "worker/comm/process_group.h"
#include "worker/decode/decode_model.h"

namespace mt::decode {

struct Layout {
  std::string name;
  int tp = 1;
  int stages = 1;
  int chunks = 1;  // of a stage
  int ranks() const { return tp * stages; }
};
// tp2, pp2, tp2_pp2, and three with more chunks or stages than a network has layers.
const std::vector<Layout>& Layouts();

// What one rank decodes with: three sequences side by side.
struct Rank {
  DecodeModel* model = nullptr;
  comm::ProcessGroup* ranks = nullptr;  // of all of them
  int number = 0;
};

// Runs `body` on every rank of the layout, each a thread, with the weights of `whole`, rounded to
// the config's type.
void RunRanks(const model::ModelRig& whole, const model::GptConfig& config, const Layout& layout,
              const std::function<void(const Rank&)>& body);

}  // namespace mt::decode
