// What is wrong with a command line, in one line of this project's words: the command, flag or
// value that was meant instead of the whole list, and no word of the library that parses.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace mt::client {

// "mtctl get: no resource 'pods'; did you mean jobs?". `app` is the root, as the failed parsing
// left it.
std::string UsageProblem(const CLI::App& app, const CLI::ParseError& error);

// "no command 'frob'; did you mean ...?" of the words that `app`, written `path`, takes.
std::string NoCommand(const CLI::App& app, const std::string& path, const std::string& word);

// The complaint about a value that is none of `names`: "'xml' is none of table, wide, json" or,
// where one is near, "no 'jason'; did you mean json?".
std::string NoSuchValue(const std::string& text, const std::vector<std::string>& names);

}  // namespace mt::client
