// Job files to begin with: a few settings that a template chooses, and behind '#' those that one
// changes next, each with the help and the default that job.proto declares. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mt::client {

// gpt2 and llama, of a million parameters for two CPU slots, and every preset, for a GPU.
std::vector<std::string> TemplateNames();

// The file; `name` is the job's, or "" for the template's own. `file` is what its comments call it.
// "" for a template that does not exist. It is valid as it is, without its comments, and with any
// or all of its settings behind '#' taken in.
std::string JobTemplate(std::string_view template_name, std::string_view name,
                        std::string_view file);

}  // namespace mt::client
