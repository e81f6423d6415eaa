// A JSON tree as block-style YAML 1.2 with the same keys, order and types, so that YAML and JSON
// readers see the same data. Text that some version of YAML would read as another type is quoted.
// Pure.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace mt::client {

// The text of the tree, with a final newline.
std::string YamlText(const nlohmann::ordered_json& tree);

}  // namespace mt::client
