// The parameters of the rig: every kind that a GPT has, as one rank of a mesh holds them.
#pragma once

#include <string>

#include "common/layout/mesh.h"
#include "worker/params/registry.h"

namespace mt::parallel {

inline constexpr const char* kWordEmbedding = "embedding.word.weight";

// Whether tensor ranks hold parts of a sum that is the parameter's gradient.
bool IsPartial(const std::string& name);

void AddRigParams(params::Registry* registry, const layout::MeshSizes& mesh,
                  const layout::Coordinates& at);

}  // namespace mt::parallel
