#include "tests/golden/pipelines.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string_view>
#include <unistd.h>

#include <ATen/ATen.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/data/files.h"
#include "lockstep/data/formats/records/record_writer.h"
#include "lockstep/data/sources.h"
#include "tests/golden/strategies.h"

namespace lockstep::golden {
namespace {

namespace fs = std::filesystem;
using data::Dataset;
using data::NodePtr;
using Paths = std::vector<std::string>;

/// Files for readers, in a folder of their own that goes when the program ends.
class Files {
 public:
  static Files& of_this_program() {
    static Files files;
    return files;
  }

  ~Files() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  /// Returns the paths of texts that have an id on each line, one for each list of ids.
  Paths texts(const Json& ids) {
    return paths("text", ids, [](const std::string& path, const Json& lines) {
      std::ofstream file(path);
      for (const Json& line : lines) file << line << '\n';
    });
  }

  /// The same as record files.
  Paths records(const Json& ids) {
    return paths("record", ids, [](const std::string& path, const Json& records) {
      data::RecordWriter writer(path);
      for (const Json& record : records) writer.write(record.dump());
      writer.close();
    });
  }

 private:
  Files() : folder_(fs::temp_directory_path() / ("lockstep_golden_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }

  template <class Write>
  Paths paths(const std::string& kind, const Json& ids, Write write) {
    Paths& known = known_[kind + ids.dump()];
    for (size_t i = known.size(); i < ids.size(); ++i) {
      known.push_back((folder_ / (kind + std::to_string(num_files_++))).string());
      write(known.back(), ids[i]);
    }
    return known;
  }

  fs::path folder_;
  int num_files_ = 0;
  std::map<std::string, Paths> known_;
};

int64_t id_of(std::string_view text) { return std::stoll(std::string(text)); }

Dataset<int64_t> read_texts(const data::FileNames& files) {
  return data::text_lines(files).map([](const std::string& line) { return id_of(line); });
}

Dataset<int64_t> read_records(const data::FileNames& files) {
  return data::tfrecords(files).map([](const data::Bytes& record) { return id_of(record); });
}

NodePtr generator(int64_t count) {
  return data::detail::node_of(data::from_generator(
      [count] { return [i = int64_t{0}, count]() mutable { return i < count ? std::optional(i++) : std::nullopt; }; }));
}

NodePtr interleaved(const Json& step) {
  return data::detail::node_of(data::from_vector(Files::of_this_program().texts(step[1]))
                                   .interleave([](const std::string& path) { return read_texts(path); },
                                               {.cycle_length = step[2], .block_length = step[3]}));
}

using Source = std::function<NodePtr(const Json& step)>;

const std::map<std::string_view, Source>& sources() {
  static const std::map<std::string_view, Source> table{
      {"range", [](const Json& step) { return data::detail::node_of(data::range(step[1])); }},
      {"slices",
       [](const Json& step) {
         return data::detail::node_of(data::from_tensor_slices(at::arange(step[1].get<int64_t>())));
       }},
      {"generator", [](const Json& step) { return generator(step[1]); }},
      {"text_files",
       [](const Json& step) { return data::detail::node_of(read_texts(Files::of_this_program().texts(step[1]))); }},
      {"record_files",
       [](const Json& step) { return data::detail::node_of(read_records(Files::of_this_program().records(step[1]))); }},
      {"interleave", interleaved},
      {"flat_map",
       [](const Json& step) {
         return data::detail::node_of(
             data::from_vector(Files::of_this_program().records(step[1])).flat_map([](const std::string& path) {
               return read_records(path);
             }));
       }},
  };
  return table;
}

using Transform = std::function<NodePtr(const NodePtr& input, const Json& step)>;

/// Those that call a function know the type of their elements: all but `map` come before a batch.
const std::map<std::string_view, Transform>& functions() {
  static const std::map<std::string_view, Transform> table{
      {"map",
       [](const NodePtr& input, const Json&) {
         return data::detail::node_of(Dataset<at::Tensor>(input).map([](const at::Tensor& x) { return x; }));
       }},
      {"pair",
       [](const NodePtr& input, const Json&) {
         return data::detail::node_of(Dataset<int64_t>(input).map([](int64_t x) { return std::tuple{x, 10 * x}; }));
       }},
      {"dict",
       [](const NodePtr& input, const Json&) {
         return data::detail::node_of(Dataset<int64_t>(input).map([](int64_t x) {
           return std::map<std::string, int64_t>{{"a", x}, {"b", 10 * x}};
         }));
       }},
      {"wide",
       [](const NodePtr& input, const Json& step) {
         const int64_t width = step[1];
         return data::detail::node_of(
             Dataset<int64_t>(input).map([width](int64_t x) { return at::full({width}, x, at::kLong); }));
       }},
      {"filter_even",
       [](const NodePtr& input, const Json&) {
         return data::detail::node_of(Dataset<int64_t>(input).filter([](int64_t x) { return x % 2 == 0; }));
       }},
  };
  return table;
}

const std::map<std::string_view, Transform>& transforms() {
  using namespace data::detail;  // NOLINT: the table reads as the pipelines do
  using data::kShardHint;
  static const std::map<std::string_view, Transform> table{
      {"batch",
       [](const NodePtr& input, const Json& step) { return make_batch(input, step[1], {.drop_remainder = step[2]}); }},
      {"padded_batch", [](const NodePtr& input,
                          const Json& step) { return make_padded_batch(input, step[1], {.drop_remainder = step[2]}); }},
      {"unbatch", [](const NodePtr& input, const Json&) { return make_unbatch(input); }},
      {"take", [](const NodePtr& input, const Json& step) { return make_take(input, step[1]); }},
      {"skip", [](const NodePtr& input, const Json& step) { return make_skip(input, step[1]); }},
      {"repeat", [](const NodePtr& input, const Json& step) { return make_repeat(input, step[1]); }},
      {"prefetch", [](const NodePtr& input, const Json& step) { return make_prefetch(input, step[1]); }},
      {"cache", [](const NodePtr& input, const Json&) { return make_cache(input, ""); }},
      {"assert_cardinality",
       [](const NodePtr& input, const Json& step) { return make_assert_cardinality(input, step[1]); }},
      {"shard", [](const NodePtr& input, const Json& step) { return make_shard(input, step[1], step[2]); }},
      {"shard_hint", [](const NodePtr& input, const Json&) { return make_shard(input, kShardHint, kShardHint); }},
      {"concatenate_range",
       [](const NodePtr& input, const Json& step) { return make_concatenate(input, make_range(0, step[1], 1)); }},
  };
  return table;
}

NodePtr with_step(const NodePtr& input, const Json& step) {
  const std::string name = step[0];
  if (const auto source = sources().find(name); source != sources().end()) return source->second(step);
  if (const auto function = functions().find(name); function != functions().end()) {
    return function->second(input, step);
  }
  const auto transform = transforms().find(name);
  if (transform == transforms().end()) throw HarnessError("[pipeline_of] unknown step: " + step.dump());
  return transform->second(input, step);
}

Json json_of_leaf(const data::LeafSpec& leaf) {
  const Json dtype = leaf.dtype ? Json(std::string(dtype_name(*leaf.dtype))) : Json();
  return {{"dtype", dtype}, {"shape", golden::to_json(leaf.shape)}};
}

/// What is known of one part, on each replica.
Json part_of(const std::vector<data::ElementSpec>& replicas, size_t part) {
  if (replicas.size() == 1) return json_of_leaf(replicas[0].leaves->at(part));
  Json each = Json::array();
  for (const data::ElementSpec& replica : replicas) each.push_back(json_of_leaf(replica.leaves->at(part)));
  return {{"per_replica", each}};
}

/// Joins the parts of an element with its structure: one alone, a list, or an object by keys.
Json joined(const data::Layout* layout, std::vector<Json> parts) {
  if (layout == nullptr || layout->keys.empty()) return parts.size() == 1 ? parts[0] : Json(parts);
  Json object = Json::object();
  for (size_t i = 0; i < parts.size(); ++i) object[layout->keys.at(i)] = parts[i];
  return object;
}

}  // namespace

data::AutoShardPolicy policy_named(const std::string& name) {
  using Policy = data::AutoShardPolicy;
  static const std::map<std::string_view, Policy> table{{"OFF", Policy::Off},
                                                        {"AUTO", Policy::Auto},
                                                        {"FILE", Policy::File},
                                                        {"DATA", Policy::Data},
                                                        {"HINT", Policy::Hint}};
  return table.at(name);
}

NodePtr pipeline_of(const Case& test_case) {
  NodePtr node;
  for (const Json& step : test_case.in.at("pipeline")) node = with_step(node, step);
  const std::string policy = test_case.text("policy");
  if (policy.empty()) return node;
  return data::detail::make_options(node, {.auto_shard_policy = policy_named(policy)});
}

Json ids_of(const data::Element& element) {
  std::vector<Json> parts;
  for (const data::Leaf& leaf : element.leaves) parts.push_back(plain_json(data::detail::to_tensor(leaf)));
  return joined(element.layout.get(), std::move(parts));
}

Json ids_of_all(const data::Node& node) {
  Json all = Json::array();
  const auto iterator = node.iterator({});
  for (data::Element element; iterator->next(element);) all.push_back(ids_of(element));
  return all;
}

Json next_ids(detail::StepIterator& iterator) {
  std::vector<data::Element> elements;
  if (!iterator.next(elements)) return nullptr;
  Json replicas = Json::array();
  for (const data::Element& element : elements) replicas.push_back(ids_of(element));
  return replicas;
}

Json ids_of_steps(const std::shared_ptr<const detail::DistributedInput>& input, size_t max_steps) {
  detail::StepIterator iterator(input, 0);
  Json steps = Json::array();
  while (steps.size() < max_steps) {
    Json step = next_ids(iterator);
    if (step.is_null()) break;
    steps.push_back(std::move(step));
  }
  return steps;
}

Json to_json(const data::PartialShape& shape) {
  if (!shape.has_rank()) return nullptr;
  Json dims = Json::array();
  for (const auto& dim : shape.dims()) dims.push_back(dim ? Json(*dim) : Json());
  return dims;
}

Json to_json(const std::vector<data::ElementSpec>& replicas) {
  const data::ElementSpec& first = replicas.at(0);
  if (!first.leaves) return nullptr;
  std::vector<Json> parts;
  for (size_t part = 0; part < first.leaves->size(); ++part) parts.push_back(part_of(replicas, part));
  return joined(first.layout.get(), std::move(parts));
}

}  // namespace lockstep::golden
