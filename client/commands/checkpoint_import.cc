// `mtctl checkpoint import`: looks through a folder of Hugging Face's, or a model file of llm.c,
// and writes the file of a job that begins with its weights.
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/checkpoint.h"
#include "client/output/format.h"
#include "client/session/session.h"
#include "common/base/files.h"
#include "common/base/plain_text.h"
#include "common/spec/derived.h"
#include "common/spec/parse.h"
#include "common/spec/print.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "worker/hf/model_files.h"
#include "worker/llmc/model_file.h"

namespace mt::client {
namespace {

namespace v1 = megatrain::v1;

struct ImportFlags {
  std::string from;
  std::string job_file;
  std::string load;
  std::string data = "text_document";
  bool overwrite = false;
};

// What is imported.
struct Imported {
  v1::Checkpoint::LoadKind kind = v1::Checkpoint::LOAD_KIND_HF;
  std::string architecture;  // as it is shown
  std::shared_ptr<const v1::Model> model;
  std::string dtype;  // torch's name
  std::vector<std::string> notes;
};

bool IsFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

StatusOr<Imported> ReadLlmc(const std::string& path) {
  ASSIGN_OR_RETURN(const llmc::ModelFile file, llmc::ModelFile::Open(path));
  const llmc::Header& header = file.header();
  Imported out{.kind = v1::Checkpoint::LOAD_KIND_LLMC,
               .architecture = fmt::format("llm.c version {}", static_cast<int>(header.version)),
               .model = std::make_shared<const v1::Model>(file.model()),
               .dtype = std::string(llmc::TorchNameOf(header.version)),
               .notes = file.notes()};
  if (header.padded_vocab > header.vocab) {
    out.notes.push_back(fmt::format("the {} rows from {} on of its word table pad the vocabulary",
                                    header.padded_vocab - header.vocab, header.vocab));
  }
  return out;
}

// A file is llm.c's, anything else Hugging Face's.
StatusOr<Imported> ReadModel(const std::string& from) {
  if (!IsFolder(from) && (base::Exists(from) || from.ends_with(".bin"))) return ReadLlmc(from);
  ASSIGN_OR_RETURN(const hf::ModelFiles files, hf::ModelFiles::Open(from));
  const hf::HfConfig& config = files.config();
  return Imported{.kind = v1::Checkpoint::LOAD_KIND_HF,
                  .architecture = std::string(hf::Architecture(config.family)),
                  .model = config.model,
                  .dtype = config.dtype,
                  .notes = files.notes()};
}

// The folder's or file's own name, for the job and below the checkpoint root.
std::string NameOf(const std::string& from) {
  std::error_code error;  // then the name as it was given
  std::filesystem::path path = std::filesystem::canonical(from, error);
  if (error) path = from;
  return path.filename().string();
}

// A name that a job can have.
std::string JobName(const std::string& of) {
  std::string name;
  for (const char c : of) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    const bool capital = c >= 'A' && c <= 'Z';
    if (name.size() == 63) break;
    name += letter ? c : capital ? static_cast<char>(c - 'A' + 'a') : '-';
  }
  const size_t first = name.find_first_not_of('-');
  if (first == std::string::npos) return "imported";
  return name.substr(first, name.find_last_not_of('-') - first + 1);
}

v1::Training::Precision PrecisionOf(const std::string& dtype) {
  if (dtype == "bfloat16") return v1::Training::PRECISION_BF16;
  if (dtype == "float64") return v1::Training::PRECISION_FP64;
  return dtype == "float16" ? v1::Training::PRECISION_FP16 : v1::Training::PRECISION_FP32;
}

// A short run with a small learning rate, to be changed.
v1::JobSpec JobOf(const ImportFlags& flags, const Imported& imported) {
  v1::JobSpec job;
  const std::string own = NameOf(flags.from);
  job.set_name(JobName(IsFolder(flags.from) ? own : std::filesystem::path(own).stem().string()));
  *job.mutable_model() = *imported.model;
  job.mutable_data()->add_path()->set_prefix(flags.data);
  job.mutable_training()->set_micro_batch_size(1);
  job.mutable_training()->set_global_batch_size(8);
  job.mutable_training()->set_train_iters(1000);
  job.mutable_training()->set_precision(PrecisionOf(imported.dtype));
  job.mutable_optimizer()->set_lr(1e-5);
  job.mutable_checkpoint()->set_load(flags.load.empty() ? own : flags.load);
  job.mutable_checkpoint()->set_load_kind(imported.kind);
  return job;
}

Status WriteJobFile(const ImportFlags& flags, const Imported& imported) {
  const std::string text = spec::ToYaml(JobOf(flags, imported));
  v1::JobSpec job;
  RETURN_IF_ERROR(spec::ToStatus(spec::LoadJob(text, {}, {}, &job)));
  if (!flags.overwrite && base::Exists(flags.job_file)) {
    return base::InvalidArgument("{} is there already; --overwrite replaces it", flags.job_file);
  }
  const std::string head = fmt::format(
      "# Begins with the weights of {}, which lie below the worker's checkpoint root as\n"
      "# checkpoint.load says. data, training and optimizer are to be changed.\n",
      base::CleanLine(NameOf(flags.from)));
  return base::WriteFileAtomic(flags.job_file, head + text);
}

ExitCode RunImport(const ImportFlags& flags, const GlobalOptions& options) {
  const auto imported = ReadModel(flags.from);
  if (!imported.ok()) return Complain(imported.status());
  if (!flags.job_file.empty()) {
    const Status written = WriteJobFile(flags, *imported);
    if (!written.ok()) return Complain(written);
  }
  const int64_t parameters = spec::ParameterCount(*imported->model);
  if (options.output == OutputFormat::kName)
    return PrintText((flags.job_file.empty() ? flags.from : flags.job_file) + "\n");
  if (!IsTable(options.output)) {
    return PrintText(RenderTree(nlohmann::ordered_json{{"folder", flags.from},
                                                       {"architecture", imported->architecture},
                                                       {"parameters", parameters},
                                                       {"notes", imported->notes},
                                                       {"job_file", flags.job_file}},
                                options.output));
  }
  std::string text =
      fmt::format("{}: {}, {} parameters, every tensor is there\n", base::CleanLine(flags.from),
                  imported->architecture, FormatRate(static_cast<double>(parameters)));
  for (const std::string& note : imported->notes) text += "note: " + base::CleanLine(note) + "\n";
  if (!flags.job_file.empty()) {
    text += fmt::format(
        "wrote {}: put the {} below the worker's checkpoint root, then mtctl "
        "submit -f {}\n",
        flags.job_file, IsFolder(flags.from) ? "folder" : "file", flags.job_file);
  }
  return PrintText(text);
}

}  // namespace

void AddCheckpointImport(CLI::App* checkpoint, const CommandContext& context) {
  CLI::App* command = checkpoint->add_subcommand("import",
                                                 "Look through a folder of Hugging Face's or a "
                                                 "model file of llm.c, and write a job that begins "
                                                 "with its weights");
  auto flags = std::make_shared<ImportFlags>();
  command
      ->add_option("model", flags->from,
                   "A folder with config.json and safetensors, or llm.c's file, model_00001000.bin")
      ->required();
  auto* job_file =
      command->add_option("--job-file", flags->job_file, "Write the file of a job that fits");
  command
      ->add_option("--load", flags->load,
                   "checkpoint.load of that job: where the model is below the worker's "
                   "checkpoint root (default: its own name)")
      ->needs(job_file);
  command->add_option("--data", flags->data, "Prefix of that job's data set")
      ->capture_default_str()
      ->needs(job_file);
  command->add_flag("--overwrite", flags->overwrite, "Replace a job file that is there")
      ->needs(job_file);
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunImport(*flags, *options); };
  });
}

}  // namespace mt::client
