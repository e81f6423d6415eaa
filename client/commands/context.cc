// `mtctl context list|use|set|delete|show`: edits the user's named clusters
// (client/session/contexts.h).
#include <algorithm>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/output/format.h"
#include "client/session/contexts.h"

namespace mt::client {
namespace {

nlohmann::ordered_json ContextTree(const Context& context, const std::string& current) {
  return {{"name", context.name},
          {"endpoint", context.endpoint},
          {"namespace", context.job_namespace.empty() ? "default" : context.job_namespace},
          {"current", context.name == current}};
}

nlohmann::ordered_json FileTree(const ContextFile& file) {
  nlohmann::ordered_json tree = {{"current", file.current},
                                 {"contexts", nlohmann::ordered_json::array()}};
  for (const Context& context : file.contexts)
    tree["contexts"].push_back(ContextTree(context, file.current));
  return tree;
}

ExitCode ListContexts(const GlobalOptions& options) {
  const auto file = ReadContexts(ContextPath());
  if (!file.ok()) return Complain(file.status());
  Rows rows = {{"CURRENT", "NAME", "ENDPOINT", "NAMESPACE"}};
  std::string names;
  for (const Context& context : file->contexts) {
    rows.push_back({context.name == file->current ? "*" : "", context.name, context.endpoint,
                    context.job_namespace.empty() ? "default" : context.job_namespace});
    names += context.name + "\n";
  }
  if (IsStructured(options.output))
    return PrintText(RenderTree(FileTree(*file), options.output, "contexts"));
  if (options.output == OutputFormat::kName) return PrintText(names);
  if (options.output == OutputFormat::kNone) return kExitOk;
  if (file->contexts.empty()) {
    std::fprintf(stderr, "no contexts; make one: mtctl context set NAME --endpoint HOST:PORT\n");
    return kExitOk;
  }
  return PrintText(Table(rows));
}

// Prints the endpoint and namespace that a command would use, and where they come from.
ExitCode ShowContext(const GlobalOptions& options) {
  if (!options.namespace_error.ok()) return Complain(options.namespace_error);
  std::string source;
  const auto endpoint = ResolveEndpoint(options, &source);
  if (!endpoint.ok()) return Complain(endpoint.status());
  const nlohmann::ordered_json tree = {{"endpoint", endpoint->ToString()},
                                       {"namespace", options.job_namespace},
                                       {"from", source},
                                       {"file", ContextPath()}};
  if (IsStructured(options.output)) return PrintText(RenderTree(tree, options.output));
  if (options.output == OutputFormat::kNone) return kExitOk;
  if (options.output == OutputFormat::kName) return PrintText(endpoint->ToString() + "\n");
  return PrintText(fmt::format("endpoint   {} (from {})\nnamespace  {}\nfile       {}\n",
                               endpoint->ToString(), source, options.job_namespace, ContextPath()));
}

// Reads the file, applies the change, validates and writes it. Prints what was done, or the
// contexts as they are now.
ExitCode ChangeContexts(const std::function<Status(ContextFile*)>& change, const std::string& name,
                        const std::string& done, const GlobalOptions& options) {
  const std::string path = ContextPath();
  auto file = ReadContexts(path);
  if (!file.ok()) return Complain(file.status());
  Status status = change(&*file);
  if (status.ok()) status = WriteContexts(path, *file);
  if (!status.ok()) return Complain(status);
  if (options.output == OutputFormat::kName) return PrintText(name + "\n");
  if (IsTable(options.output)) return PrintText(done + "\n");
  return PrintText(RenderTree(FileTree(*file), options.output, "contexts"));
}

Status SetContext(const Context& wanted, ContextFile* file) {
  if (wanted.name.empty()) return base::InvalidArgument("a context needs a name");
  auto at = std::find_if(file->contexts.begin(), file->contexts.end(),
                         [&](const Context& c) { return c.name == wanted.name; });
  if (at == file->contexts.end()) {
    if (wanted.endpoint.empty())
      return base::InvalidArgument("context {} is new: it needs --endpoint", wanted.name);
    file->contexts.push_back({.name = wanted.name, .endpoint = {}, .job_namespace = {}});
    at = file->contexts.end() - 1;
  }
  if (!wanted.endpoint.empty()) {
    RETURN_IF_ERROR(rpc::ParseEndpoint(wanted.endpoint).status());
    at->endpoint = wanted.endpoint;
  }
  if (!wanted.job_namespace.empty()) at->job_namespace = wanted.job_namespace;
  // The first context becomes the current one.
  if (file->current.empty()) file->current = wanted.name;
  return OkStatus();
}

void AddChanges(CLI::App* command, const CommandContext& context) {
  auto wanted = std::make_shared<Context>();
  CLI::App* use = command->add_subcommand("use", "Make one the current one");
  use->add_option("context", wanted->name, "Its name")->required();
  use->callback([=, run = context.run, options = context.options] {
    *run = [=] {
      return ChangeContexts(
          [&](ContextFile* file) {
            file->current = wanted->name;
            return NamedContext(*file, wanted->name).status();
          },
          wanted->name, "current context: " + wanted->name, *options);
    };
  });
  CLI::App* set = command->add_subcommand("set", "Make or change one");
  set->add_option("context", wanted->name, "Its name")->required();
  set->add_option("--endpoint", wanted->endpoint, "HOST:PORT of its coordinator");
  set->add_option("-n,--namespace", wanted->job_namespace, "Namespace of jobs there");
  set->callback([=, run = context.run, options = context.options] {
    *run = [=] {
      return ChangeContexts([&](ContextFile* file) { return SetContext(*wanted, file); },
                            wanted->name, "context " + wanted->name + " set", *options);
    };
  });
  CLI::App* remove = command->add_subcommand("delete", "Forget one");
  remove->add_option("context", wanted->name, "Its name")->required();
  remove->callback([=, run = context.run, options = context.options] {
    *run = [=] {
      return ChangeContexts(
          [&](ContextFile* file) {
            RETURN_IF_ERROR(NamedContext(*file, wanted->name).status());
            std::erase_if(file->contexts, [&](const Context& c) { return c.name == wanted->name; });
            if (file->current == wanted->name) file->current.clear();
            return OkStatus();
          },
          wanted->name, "context " + wanted->name + " deleted", *options);
    };
  });
}

}  // namespace

void AddContext(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("context", "Named clusters of yours")->require_subcommand(1);
  CLI::App* list = command->add_subcommand("list", "All of them");
  list->callback([=] { *context.run = [=] { return ListContexts(*context.options); }; });
  CLI::App* show = command->add_subcommand("show", "What commands use now, and from where");
  show->callback([=] { *context.run = [=] { return ShowContext(*context.options); }; });
  AddChanges(command, context);
}

}  // namespace mt::client
