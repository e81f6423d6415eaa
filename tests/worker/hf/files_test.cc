// Folders of Hugging Face's that are damaged, doubled, incomplete or another model's: each is
// refused with the file or tensor named. And fuzzers of config.json, of safetensors headers and of
// indexes, which scripts/fuzz.sh runs for longer.
#include "common/base/files.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/fuzz_time.h"
#include "tests/worker/checkpoint/fuzz_mutator.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/hf/model_files.h"
#include "worker/hf/shard_plan.h"

namespace mt::hf {
namespace {

using checkpoint::Mutator;
using checkpoint::TempDir;
using nlohmann::json;

std::string ReadFixture(const std::string& name) {
  return base::ReadFile(std::string(MT_GOLDEN_HF) + "/" + name).value();
}

// A folder that a test changes, with the files of a fixture.
class FolderOf {
 public:
  explicit FolderOf(const std::string& fixture) {
    for (const char* const file : {"config.json", "model.safetensors"})
      Write(file, ReadFixture(fixture + "/" + file));
  }
  void Write(const std::string& file, const std::string& text) const {
    ASSERT_TRUE(base::WriteFileAtomic(dir_.File(file), text).ok());
  }
  std::string Text(const std::string& file) const {
    return base::ReadFile(dir_.File(file)).value();
  }
  void Remove(const std::string& file) const { ASSERT_EQ(::unlink(dir_.File(file).c_str()), 0); }
  void Set(const std::string& field, const json& value) const {
    json config = json::parse(Text("config.json"));
    config[field] = value;
    Write("config.json", config.dump());
  }
  const std::string& path() const { return dir_.path(); }
  Status Open() const { return ModelFiles::Open(path()).status(); }
  // The error names all of these.
  void ExpectRefused(const std::vector<std::string>& texts) const {
    const Status status = Open();
    EXPECT_FALSE(status.ok());
    for (const std::string& text : texts)
      EXPECT_NE(base::Message(status).find(text), std::string::npos) << text << " in " << status;
  }

 private:
  const TempDir dir_;
};

struct ShardText {
  json header;
  std::string data;
};

ShardText Split(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  return {json::parse(file.substr(8, length)), file.substr(8 + length)};
}

std::string Join(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}

// The same file with the tensor of this name changed or renamed in its header.
std::string WithHeader(const std::string& file, const std::function<void(json*)>& change) {
  ShardText text = Split(file);
  change(&text.header);
  return Join(text.header.dump(), text.data);
}

TEST(HfFiles, ATiedHeadThatDiffersIsRefusedWithBothValues) {
  FolderOf folder("llama2");
  folder.Set("tie_word_embeddings", true);
  folder.ExpectRefused({"lm_head.weight", "tie_word_embeddings", "word table"});
}

TEST(HfFiles, MissingTensorsAreNotFilled) {
  FolderOf folder("llama3");
  folder.Set("tie_word_embeddings", false);
  folder.ExpectRefused({"lm_head.weight is missing"});
  FolderOf renamed("llama2");
  renamed.Write("model.safetensors", WithHeader(renamed.Text("model.safetensors"), [](json* h) {
                  (*h)["model.norm.gain"] = (*h)["model.norm.weight"];
                  h->erase("model.norm.weight");
                }));
  renamed.ExpectRefused({"model.norm.weight is missing", "model.norm.gain is no tensor"});
}

TEST(HfFiles, PaddedRowsAreNamed) {
  FolderOf folder("llama2");
  folder.Set("vocab_size", 90);
  folder.ExpectRefused({"embed_tokens", "[96, 32]", "[90, 32]", "padded rows", "vocab_size"});
}

TEST(HfFiles, OneFormOfWeightsAlone) {
  FolderOf folder("gpt2");
  const std::string weights = folder.Text("model.safetensors");
  const json header = Split(weights).header;
  json index = {{"metadata", json::object()}, {"weight_map", json::object()}};
  for (const auto& [name, entry] : header.items())
    if (name != "__metadata__") index["weight_map"][name] = "model-00001-of-00001.safetensors";
  folder.Write(std::string(kIndexName), index.dump());
  folder.ExpectRefused({"both", "model.safetensors.index.json"});
  folder.Remove("model.safetensors");
  folder.ExpectRefused({"model-00001-of-00001.safetensors", "missing"});
  folder.Write("model-00001-of-00001.safetensors", weights);
  EXPECT_TRUE(folder.Open().ok()) << folder.Open();
  // A second file with the same tensors, and an index that names a file that lacks one.
  json doubled = index;
  doubled["weight_map"]["transformer.wte.weight"] = "other.safetensors";
  folder.Write(std::string(kIndexName), doubled.dump());
  folder.Write("other.safetensors", weights);
  folder.ExpectRefused({"other.safetensors", "is in", "which is meant"});
  folder.Write("other.safetensors", Join("{}", ""));
  folder.ExpectRefused({"transformer.wte.weight", "other.safetensors"});
  index["weight_map"]["transformer.ln_f.weight"] = "../model.safetensors";
  folder.Write(std::string(kIndexName), index.dump());
  folder.ExpectRefused({"transformer.ln_f.weight", "no name in the folder"});
  folder.Remove(std::string(kIndexName));
  folder.ExpectRefused({"neither", "pytorch_model.bin"});
}

TEST(HfFiles, FilesOfTheBareNetworkAndWithMasksAreRead) {
  FolderOf folder("gpt2");
  folder.Write("model.safetensors", WithHeader(folder.Text("model.safetensors"), [](json* header) {
                 json bare = json::object();
                 for (const auto& [name, entry] : header->items()) {
                   const std::string prefix = "transformer.";
                   bare[name.starts_with(prefix) ? name.substr(prefix.size()) : name] = entry;
                 }
                 // An empty tensor at the border.
                 bare["h.0.attn.bias"] = {{"dtype", "BOOL"},
                                          {"shape", json::array({0})},
                                          {"data_offsets", json::array({0, 0})}};
                 *header = bare;
               }));
  EXPECT_TRUE(folder.Open().ok()) << folder.Open();
}

TEST(HfFiles, HeadersAreAsStrictAsTheLibrary) {
  FolderOf folder("gpt2");
  const std::string weights = folder.Text("model.safetensors");
  folder.Write("model.safetensors", weights + "more");
  folder.ExpectRefused({"4 bytes behind the last tensor"});
  folder.Write("model.safetensors", WithHeader(weights, [](json* h) {
                 (*h)["__metadata__"] = {{"format", 1}};
               }));
  folder.ExpectRefused({"__metadata__"});
  folder.Write("model.safetensors",
               WithHeader(weights, [](json* h) { h->erase("transformer.h.0.ln_1.weight"); }));
  folder.ExpectRefused({"a hole or an overlap"});
  ShardText text = Split(weights);
  std::string header = text.header.dump();
  header.insert(1,
                "\"transformer.wte.weight\":" + text.header["transformer.wte.weight"].dump() + ",");
  folder.Write("model.safetensors", Join(header, text.data));
  folder.ExpectRefused({"transformer.wte.weight twice"});
  folder.Write("model.safetensors",
               WithHeader(weights, [](json* h) { (*h)["transformer.ln_f.bias"]["dtype"] = "F4"; }));
  folder.ExpectRefused({"unknown type F4"});
  folder.Write("model.safetensors", WithHeader(weights, [](json* h) {
                 (*h)["transformer.ln_f.bias"]["dtype"] = "I32";
               }));
  folder.ExpectRefused({"transformer.ln_f.bias", "I32", "F32, F64, BF16 and F16"});
}

TEST(HfFiles, TheFingerprintIsOfEveryTensor) {
  const auto print = [](const FolderOf& folder) {
    const auto files = ModelFiles::Open(folder.path());
    return files.ok() ? files->Fingerprint().value() : base::Message(files.status());
  };
  FolderOf folder("gpt2");
  const std::string first = print(folder);
  EXPECT_EQ(first.size(), 32U) << first;
  EXPECT_EQ(print(folder), first);
  const ShardText good = Split(folder.Text("model.safetensors"));
  for (const auto& [name, entry] : good.header.items()) {
    if (name == "__metadata__") continue;
    std::string data = good.data;
    char& last = data.at(entry.at("data_offsets").at(1).get<size_t>() - 4);
    last = static_cast<char>(last ^ 1);
    folder.Write("model.safetensors", Join(good.header.dump(), data));
    EXPECT_EQ(print(folder).size(), 32U) << print(folder);
    EXPECT_NE(print(folder), first) << name;
  }
}

TEST(HfFilesDeathTest, ABoxThatLeavesItsParameter) {
  const auto files = ModelFiles::Open(std::string(MT_GOLDEN_HF) + "/gpt2");
  ASSERT_TRUE(files.ok()) << files.status();
  const std::string gain = "final_norm.weight", matrix = "layers.0.ffn.up.weight";
  const Shape wide = files->parameters().at(gain), all = files->parameters().at(matrix);
  std::vector<std::byte> out(1 << 20);
  const auto read = [&](const std::string& name, const checkpoint::Box& box) {
    (void)files->Read(name, box, "F32", out.data());
  };
  EXPECT_DEATH(read("final_norm.gain", {{0}, wide}), "no parameter final_norm.gain");
  EXPECT_DEATH(read(gain, {{1}, wide}), "final_norm.weight, dim 0");
  EXPECT_DEATH(read(matrix, {{0, 1}, all}), "ffn.up.weight, dim 1");
  EXPECT_DEATH(read(matrix, {{0}, {1}}), "ffn.up.weight");
}

// Every text is read or refused; what was read can be used.
void Fuzz(const std::vector<std::string>& texts, int64_t rounds, uint64_t seed,
          const std::function<Status(const std::string&)>& read) {
  for (const std::string& text : texts) EXPECT_TRUE(read(text).ok()) << read(text);
  FuzzTime time(rounds, seed);
  Mutator mutator(time.seed());
  while (time.Next()) {
    const std::string text =
        mutator.Mutate(texts[mutator.Below(texts.size())], texts[mutator.Below(texts.size())]);
    const Status status = read(text);
    if (!status.ok()) {
      EXPECT_GT(base::Message(status).size(), 10U) << text.substr(0, 2000);
    }
  }
}

TEST(HfFuzzTest, Configs) {
  std::vector<std::string> texts;
  for (const char* const name : {"gpt2", "llama3", "llama3_old", "mistral", "qwen2", "qwen3",
                                 "neox_parallel", "neox_parallel_old"})
    texts.push_back(ReadFixture(std::string(name) + "/config.json"));
  Fuzz(texts, 4000, 20261130, [](const std::string& text) -> Status {
    ASSIGN_OR_RETURN(const HfConfig config, ParseConfig(text));
    EXPECT_TRUE(FamilyOf(*config.model).ok()) << "what is read can be written: " << text;
    return OkStatus();
  });
}

// A file that is nowhere.
StatusOr<base::Fd> FileWith(std::string_view bytes) {
  base::Fd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  if (!fd || ::write(fd.get(), bytes.data(), bytes.size()) != std::ssize(bytes))
    return base::Internal("no file in memory");
  return fd;
}

TEST(HfFuzzTest, Shards) {
  std::vector<std::string> headers;
  size_t longest = 0;
  for (const char* const name : {"gpt2", "llama3", "neox"}) {
    const std::string file = ReadFixture(std::string(name) + "/model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    headers.push_back(file.substr(8, length));
    longest = std::max(longest, file.size());
  }
  Fuzz(headers, 1500, 20261131, [&](const std::string& header) -> Status {
    // As much data as the header's last tensor ends with, so that mutations of other fields count.
    int64_t end = 0;
    const json parsed = json::parse(header, nullptr, false);
    if (parsed.is_object()) {
      for (const auto& [name, entry] : parsed.items()) {
        const json::json_pointer last("/data_offsets/1");
        if (entry.is_object() && entry.contains(last) && entry.at(last).is_number_integer())
          end = std::max(end, entry.at(last).get<int64_t>());
      }
    }
    const auto size =
        static_cast<size_t>(std::clamp<int64_t>(end, 0, static_cast<int64_t>(longest)));
    const std::string file = Join(header, std::string(size, 'x'));
    ASSIGN_OR_RETURN(const auto reader,
                     checkpoint::SafetensorsReader::OpenForeign(
                         "shard", [&](const std::string&) { return FileWith(file); }));
    for (const auto& [name, entry] : reader.entries()) {
      std::vector<std::byte> data(static_cast<size_t>(entry.bytes));
      RETURN_IF_ERROR(reader.Read(entry, data));
    }
    return OkStatus();
  });
}

TEST(HfFuzzTest, Indexes) {
  const std::string weights = ReadFixture("gpt2/model.safetensors");
  json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", json::object()}};
  const json header = Split(weights).header;
  for (const auto& [name, entry] : header.items())
    if (name != "__metadata__") index["weight_map"][name] = "a.safetensors";
  Fuzz({index.dump(), index.dump(2)}, 1500, 20261132, [&](const std::string& text) {
    const auto open = [&](const std::string& path) -> StatusOr<base::Fd> {
      if (path.ends_with(kIndexName)) return FileWith(text);
      if (path.ends_with("/a.safetensors")) return FileWith(weights);
      return base::NotFound("{} is not there", path);
    };
    // memfd files are read from where the writer left them.
    const auto rewound = [&](const std::string& path) -> StatusOr<base::Fd> {
      ASSIGN_OR_RETURN(base::Fd fd, open(path));
      if (::lseek(fd.get(), 0, SEEK_SET) != 0) return base::Internal("seek");
      return fd;
    };
    return ShardFiles::Open("folder", rewound).status();
  });
}

}  // namespace
}  // namespace mt::hf
