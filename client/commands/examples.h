// Examples of each command, at the end of its --help; the tests run every one of them. Pure.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace mt::client {

// Adds to every command below `root` that has examples their text as its footer.
void AddExamples(CLI::App* root);

// The first example of the command ("get", "checkpoint save"), or of the nearest one above it; ""
// for none.
std::string FirstExample(std::string_view path);

}  // namespace mt::client
