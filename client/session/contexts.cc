// Reads the YAML with its line numbers, for messages, and writes it by the emitter of yaml-cpp,
// which quotes as needed.
#include "client/session/contexts.h"

#include <cstdlib>
#include <filesystem>

#include <yaml-cpp/yaml.h>

#include "common/base/files.h"
#include "common/rpc/endpoint.h"

namespace mt::client {
namespace {

// An error at a line of the file; thrown within this file only.
struct Fault {
  int line;  // from 1
  std::string message;
};

std::string Text(const YAML::Node& node, const std::string& key) {
  if (!node.IsScalar()) throw Fault{node.Mark().line + 1, fmt::format("{} must be a text", key)};
  return node.Scalar();
}

Context ParseContext(const YAML::Node& node) {
  const int line = node.Mark().line + 1;
  if (!node.IsMap()) throw Fault{line, "a context is {name, endpoint, namespace}"};
  Context out;
  for (const auto& member : node) {
    const std::string key = Text(member.first, "a key");
    if (key == "name") {
      out.name = Text(member.second, key);
    } else if (key == "endpoint") {
      out.endpoint = Text(member.second, key);
      const auto endpoint = rpc::ParseEndpoint(out.endpoint);
      if (!endpoint.ok())
        throw Fault{member.second.Mark().line + 1, base::Message(endpoint.status())};
    } else if (key == "namespace") {
      out.job_namespace = Text(member.second, key);
    } else {
      throw Fault{member.first.Mark().line + 1,
                  fmt::format("unknown key {}; a context has name, endpoint, namespace", key)};
    }
  }
  if (out.name.empty()) throw Fault{line, "a context needs a name"};
  if (out.endpoint.empty())
    throw Fault{line, fmt::format("context {} needs an endpoint", out.name)};
  return out;
}

ContextFile Parse(const std::string& text) {
  ContextFile out;
  const YAML::Node root = YAML::Load(text);
  if (root.IsNull()) return out;
  if (!root.IsMap()) throw Fault{root.Mark().line + 1, "expected current: and contexts:"};
  int current_line = 1;
  for (const auto& member : root) {
    const std::string key = Text(member.first, "a key");
    if (key == "current") {
      current_line = member.second.Mark().line + 1;
      out.current = member.second.IsNull() ? "" : Text(member.second, key);
    } else if (key == "contexts") {
      if (!member.second.IsSequence() && !member.second.IsNull())
        throw Fault{member.second.Mark().line + 1, "contexts must be a list"};
      for (const YAML::Node& item : member.second) {
        Context context = ParseContext(item);
        if (out.Find(context.name) != nullptr)
          throw Fault{item.Mark().line + 1, fmt::format("context {} is there twice", context.name)};
        out.contexts.push_back(std::move(context));
      }
    } else {
      throw Fault{member.first.Mark().line + 1,
                  fmt::format("unknown key {}; expected current, contexts", key)};
    }
  }
  if (!out.current.empty() && out.Find(out.current) == nullptr)
    throw Fault{current_line, fmt::format("current context {} is not in the list", out.current)};
  return out;
}

}  // namespace

const Context* ContextFile::Find(const std::string& name) const {
  for (const Context& context : contexts) {
    if (context.name == name) return &context;
  }
  return nullptr;
}

std::string ContextPath() {
  const char* xdg = std::getenv("XDG_CONFIG_HOME");
  if (xdg != nullptr && *xdg != '\0') return base::JoinPath(xdg, "megatrain/config.yaml");
  const char* home = std::getenv("HOME");
  return base::JoinPath(home == nullptr || *home == '\0' ? "/tmp" : home,
                        ".config/megatrain/config.yaml");
}

StatusOr<ContextFile> ReadContexts(const std::string& path) {
  const auto text = base::ReadFile(path);
  if (absl::IsNotFound(text.status())) return ContextFile();
  if (!text.ok()) return text.status();
  try {
    return Parse(*text);
  } catch (const Fault& fault) {
    return base::InvalidArgument("{}:{}: {}", path, fault.line, fault.message);
  } catch (const YAML::Exception& error) {
    return base::InvalidArgument("{}:{}: {}", path, error.mark.line + 1, error.msg);
  }
}

Status WriteContexts(const std::string& path, const ContextFile& file) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  if (!file.current.empty()) out << YAML::Key << "current" << YAML::Value << file.current;
  out << YAML::Key << "contexts" << YAML::Value << YAML::BeginSeq;
  for (const Context& context : file.contexts) {
    out << YAML::BeginMap << YAML::Key << "name" << YAML::Value << context.name << YAML::Key
        << "endpoint" << YAML::Value << context.endpoint;
    if (!context.job_namespace.empty())
      out << YAML::Key << "namespace" << YAML::Value << context.job_namespace;
    out << YAML::EndMap;
  }
  out << YAML::EndSeq << YAML::EndMap;
  RETURN_IF_ERROR(base::MakeDirs(std::filesystem::path(path).parent_path().string()));
  return base::WriteFileAtomic(path, std::string(out.c_str()) + "\n");
}

StatusOr<Context> NamedContext(const ContextFile& file, const std::string& name) {
  if (const Context* context = file.Find(name)) return *context;
  std::string names;
  for (const Context& context : file.contexts) names += (names.empty() ? "" : ", ") + context.name;
  return base::NotFound(
      "no context {}; there {}", name,
      names.empty() ? "are none: make one with `mtctl context set`" : fmt::format("are {}", names));
}

}  // namespace mt::client
