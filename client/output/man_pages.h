// Manual pages (man(7)) from the program's own description of its commands and flags: what --help
// prints, as groff's input. Pure.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace mt::client {

struct ManPage {
  std::string file;  // "mtctl-submit.1"
  std::string text;
};

// mtctl.1, and a page for each verb with the commands below it; `app` is the root command, with its
// examples. `version` stands at the foot of each page.
std::vector<ManPage> ManPages(const CLI::App& app, const std::string& version);

}  // namespace mt::client
