// A JSON tree as block-style YAML 1.2: the same keys, order and types, so that a YAML reader gets
// what a JSON reader gets. Text that another YAML version would take for something else is quoted.
// Pure.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace mt::client {

std::string YamlText(const nlohmann::ordered_json& tree);

}  // namespace mt::client
