#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lockstep/data/files.h"
#include "lockstep/data/formats/records/record_writer.h"
#include "tests/data/formats/temporary_folder.h"
#include "tests/fuzz/fuzz_input.h"

// Writes files, damages them, and reads them through a graph of readers and transforms that the input chooses. What is
// not damaged arrives exactly once, nothing arrives that was not written, and the dataset ends.
namespace lockstep::data::fuzz {
namespace {

/// The input as a list of decisions; after its end each of them is 0.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  /// A number below `bound`, which is at most 65,536.
  size_t below(size_t bound) {
    size_t value = byte();
    if (bound > 256) value = value << 8 | byte();
    return value % bound;
  }
  bool flip() { return below(2) == 1; }

 private:
  size_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }

  const uint8_t* data_;
  size_t left_;
};

enum class Fate { Arrives, MayArrive, IsLost };

/// The records that were written, and what must become of them.
struct Written {
  std::map<std::string, Fate> fates;
  /// Whether records may arrive that were not written: lines and records without a checksum.
  bool may_differ = false;
  /// Whether records of damaged files may arrive several times: damaged compressed data can repeat whole records.
  bool may_repeat = false;
};

constexpr int kMostFiles = 4;
constexpr size_t kFixedBytes = 6;
enum class Format { Records, GzipRecords, Lines, Fixed };

struct File {
  std::string path;
  std::vector<std::string> records;
  /// Where each record begins in the file, and the end of the last one.
  std::vector<size_t> offsets;
};

std::string record_of(Format format, size_t file, size_t index, Choices& choices) {
  std::string text = std::to_string(file) + ":" + std::to_string(index) + ":";
  if (format == Format::Fixed) return (text + std::string(kFixedBytes, '.')).substr(0, kFixedBytes);
  return text + std::string(choices.below(choices.flip() ? 3'000 : 20), 'x');
}

File write_file(Format format, const std::string& path, size_t number, Choices& choices) {
  File file{path, {}, {0}};
  const size_t count = choices.below(11);
  for (size_t i = 0; i < count; ++i) file.records.push_back(record_of(format, number, i, choices));
  std::string text;
  const bool are_records = format == Format::Records || format == Format::GzipRecords;
  for (const std::string& record : file.records) {
    file.offsets.push_back(file.offsets.back() + record.size() + (are_records ? 16 : format == Format::Lines ? 1 : 0));
    text += format == Format::Lines ? record + "\n" : record;
  }
  if (!are_records) {
    data::tests::write_whole_file(path, text);
    return file;
  }
  RecordWriter writer(path, {.compression = format == Format::Records ? Compression::None : Compression::Gzip});
  for (const std::string& record : file.records) writer.write(record);
  writer.close();
  return file;
}

/// The number of the record that the byte at `offset` belongs to.
size_t record_at(const File& file, size_t offset) {
  size_t record = 0;
  while (record + 1 < file.offsets.size() && file.offsets[record + 1] <= offset) ++record;
  return record;
}

void lose(const File& file, size_t first, size_t end, Fate fate, Written& written) {
  for (size_t i = first; i < std::min(end, file.records.size()); ++i) written.fates[file.records[i]] = fate;
}

void flip_byte(Format format, const File& file, Choices& choices, Written& written) {
  std::string bytes = data::tests::read_whole_file(file.path);
  if (bytes.empty()) return;
  const size_t offset = choices.below(65'536) % bytes.size();
  bytes[offset] = static_cast<char>(bytes[offset] ^ (1 + choices.below(255)));
  data::tests::write_whole_file(file.path, bytes);
  const size_t all = file.records.size();
  const size_t hit = record_at(file, offset);
  switch (format) {
    case Format::Records:
      // Behind a damaged length nobody knows where the next record begins. In the first one it is a magic number, too.
      lose(file, hit, offset - file.offsets[hit] < 12 ? all : hit + 1, Fate::IsLost, written);
      break;
    case Format::GzipRecords:
      lose(file, 0, all, Fate::MayArrive, written);
      written.may_repeat = true;
      break;
    case Format::Lines:
      lose(file, hit, hit + 2, Fate::MayArrive, written);  // two where a line's end is hit
      written.may_differ = true;
      break;
    case Format::Fixed:
      lose(file, hit, hit + 1, Fate::MayArrive, written);
      written.may_differ = true;
      break;
  }
}

void cut(Format format, const File& file, Choices& choices, Written& written) {
  const std::string bytes = data::tests::read_whole_file(file.path);
  if (bytes.empty()) return;
  const size_t size = choices.below(65'536) % bytes.size();
  data::tests::write_whole_file(file.path, bytes.substr(0, size));
  const size_t all = file.records.size();
  switch (format) {
    case Format::Records:
      lose(file, record_at(file, size), all, Fate::IsLost, written);
      break;
    case Format::GzipRecords:
      lose(file, 0, all, Fate::MayArrive, written);
      break;
    case Format::Lines:
      lose(file, record_at(file, size), record_at(file, size) + 1, Fate::MayArrive, written);
      lose(file, record_at(file, size) + 1, all, Fate::IsLost, written);
      written.may_differ = true;
      break;
    case Format::Fixed:
      lose(file, size % kFixedBytes == 0 ? size / kFixedBytes : 0, all, Fate::IsLost, written);
      break;
  }
}

void damage(Format format, const File& file, Choices& choices, Written& written) {
  switch (choices.below(5)) {
    case 1:
      return flip_byte(format, file, choices, written);
    case 2:
      return cut(format, file, choices, written);
    case 3:
      std::filesystem::remove(file.path);
      return lose(file, 0, file.records.size(), Fate::IsLost, written);
    case 4: {
      if (format != Format::Records) return;
      return data::tests::write_whole_file(file.path, data::tests::read_whole_file(file.path) + "rest");
    }
    default:
      return;
  }
}

NodePtr reader_of(Format format, const FileNames& files, FileAccess access) {
  if (format == Format::Lines) return detail::node_of(text_lines(files, {.access = access}));
  if (format == Format::Fixed) {
    return detail::node_of(fixed_length_records(files, {.record_bytes = kFixedBytes, .access = access}));
  }
  return detail::node_of(tfrecords(files, {.access = access}));
}

std::vector<NodePtr> shards_of(const NodePtr& node, Choices& choices) {
  std::vector<NodePtr> shards;
  const auto count = static_cast<int64_t>(1 + choices.below(4));
  for (int64_t i = 0; i < count; ++i) shards.push_back(detail::make_shard(node, count, i));
  return shards;
}

/// One or several datasets that together have every record of the files.
std::vector<NodePtr> graphs_of(Format format, const std::vector<std::string>& files, FileAccess access,
                               Choices choices) {
  const auto each = [=](Element& name) { return reader_of(format, detail::decode<std::string>(name), access); };
  const NodePtr names = detail::node_of(from_vector(files));
  const int threads = choices.flip() ? 2 : 1;
  NodePtr node = reader_of(format, files, access);
  switch (choices.below(3)) {
    case 1:
      node = detail::make_flat_map(names, each);
      break;
    case 2:
      node = detail::make_interleave(names, each,
                                     {.cycle_length = static_cast<int64_t>(1 + choices.below(4)),
                                      .block_length = static_cast<int64_t>(1 + choices.below(3)),
                                      .num_threads = threads});
      break;
    default:
      break;
  }
  if (choices.flip()) node = detail::make_ignore_errors(node, {.log = false});
  std::vector<NodePtr> shards{node};
  if (choices.flip()) shards = shards_of(node, choices);
  const auto stages = choices.below(5);
  for (size_t stage = 0; stage < stages; ++stage) {
    const size_t kind = choices.below(6);
    const auto size = static_cast<int64_t>(1 + choices.below(5));
    for (NodePtr& shard : shards) {
      if (kind == 0) shard = detail::make_shuffle(shard, 2 * size, {});
      if (kind == 1) shard = detail::make_batch(shard, size, {});
      if (kind == 2) shard = detail::make_prefetch(shard, size);
      if (kind == 3 && shard->spec().leaves && shard->spec().leaves->front().kind == LeafSpec::Kind::List) {
        shard = detail::make_unbatch(shard);
      }
      if (kind == 4) shard = detail::make_cache(shard, "");
      if (kind == 5) shard = detail::make_rebatch(detail::make_batch(shard, size, {}), {2, 1}, {});
    }
  }
  if (shards.size() == 1 && choices.flip()) shards = shards_of(shards.front(), choices);
  return shards;
}

void collect(const Leaf& leaf, std::map<std::string, int>& found) {
  if (const auto* bytes = leaf.as<Bytes>()) {
    ++found[bytes->str()];
  } else if (const auto* list = leaf.as<LeafList>()) {
    for (const Leaf& each : *list->leaves) collect(each, found);
  }
}

[[noreturn]] void fail(const std::string& what, const Node& node) {
  std::fprintf(stderr, "%s\ndataset: %s\n", what.c_str(), detail::describe(node).c_str());
  std::abort();
}

void read_all(const NodePtr& node, uint64_t epoch, std::map<std::string, int>& found) {
  const auto iterator = node->iterator({.epoch = epoch});
  Element element;
  for (int calls = 0;; ++calls) {
    if (calls == 10'000) fail("the dataset does not end", *node);
    try {
      if (!iterator->next(element)) return;
    } catch (const DataError&) {
      continue;
    }
    for (const Leaf& leaf : element.leaves) collect(leaf, found);
  }
}

void check(const Written& written, const std::map<std::string, int>& found, const Node& node) {
  for (const auto& [record, fate] : written.fates) {
    const auto at = found.find(record);
    const int count = at == found.end() ? 0 : at->second;
    // Without a checksum, a damaged record may look like another one.
    const int others = written.may_differ ? kMostFiles : 0;
    const bool any_number = fate == Fate::MayArrive && written.may_repeat;
    const bool right = (count <= 1 + others || any_number) && (fate != Fate::Arrives || count >= 1) &&
                       (fate != Fate::IsLost || count <= others);
    if (!right) fail("record " + record.substr(0, 20) + " arrived " + std::to_string(count) + " times", node);
  }
  for (const auto& [record, count] : found) {
    if (!written.fates.contains(record) && !written.may_differ) fail("nobody wrote " + record.substr(0, 20), node);
  }
}

const data::tests::TemporaryFolder& pipeline_folder() {
  static const data::tests::TemporaryFolder folder;
  return folder;
}

void write_damage_read(Choices choices) {
  const auto format = static_cast<Format>(choices.below(4));
  Written written;
  std::vector<File> files;
  const size_t count = 1 + choices.below(kMostFiles);
  for (size_t i = 0; i < count; ++i) {
    files.push_back(write_file(format, pipeline_folder() / std::to_string(i), i, choices));
    for (const std::string& record : files.back().records) written.fates[record] = Fate::Arrives;
  }
  std::vector<std::string> names;
  for (const File& file : files) {
    damage(format, file, choices, written);
    names.push_back(file.path);
  }
  for (const FileAccess access : {FileAccess::Map, FileAccess::Read}) {
    const std::vector<NodePtr> graphs = graphs_of(format, names, access, choices);
    for (uint64_t epoch = 0; epoch < 2; ++epoch) {
      std::map<std::string, int> found;
      for (const NodePtr& graph : graphs) read_all(graph, epoch, found);
      check(written, found, *graphs.front());
    }
  }
}

}  // namespace
}  // namespace lockstep::data::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    lockstep::data::fuzz::write_damage_read(lockstep::data::fuzz::Choices(data, size));
  } catch (const c10::NotImplementedError&) {  // built without zlib
  }
  return 0;
}
