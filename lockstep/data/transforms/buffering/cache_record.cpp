#include "lockstep/data/transforms/buffering/cache_record.h"

#include <cstring>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/data/element/bus_errors.h"
#include "lockstep/data/element/private_memory.h"

namespace lockstep::data::detail {
namespace {

enum class Kind : uint8_t { Tensor, Number, Bytes, List };
/// Tensors of this size and more are aligned to cache lines; smaller ones to the size of their elements.
constexpr size_t kLargeTensor = 4096;
constexpr size_t kLineSize = 64;
constexpr uint32_t kNoLayout = ~uint32_t{0};

size_t alignment_of(at::ScalarType dtype, size_t num_bytes) {
  return num_bytes >= kLargeTensor ? kLineSize : c10::elementSize(dtype);
}

class RecordWriter {
 public:
  explicit RecordWriter(uint64_t offset) : offset_(offset) {}

  template <class T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void text(std::string_view text) {
    put(static_cast<uint64_t>(text.size()));
    bytes_.append(text);
  }

  void layout(const Layout* layout) {
    put(layout == nullptr ? kNoLayout : static_cast<uint32_t>(layout->sizes.size()));
    if (layout == nullptr) return;
    for (const int64_t size : layout->sizes) put(size);
    put(static_cast<uint32_t>(layout->keys.size()));
    for (const std::string& key : layout->keys) text(key);
  }

  void leaf(const Leaf& leaf) {
    if (const auto* row = leaf.as<Row>()) {
      dense(row->type->dtype, row->type->sizes, {row->data, row->type->num_bytes});
    } else if (const auto* number = leaf.as<lockstep::data::Number>()) {
      put(Kind::Number);
      put(number->dtype);
      put(number->bytes);
    } else if (const auto* bytes = leaf.as<Bytes>()) {
      put(Kind::Bytes);
      text(bytes->view());
    } else if (const auto* list = leaf.as<LeafList>()) {
      put(Kind::List);
      put(static_cast<uint64_t>(list->leaves->size()));
      for (const Leaf& each : *list->leaves) this->leaf(each);
    } else {
      tensor(leaf);
    }
  }

  std::string take() { return std::move(bytes_); }

 private:
  void tensor(const Leaf& leaf) {
    const auto* tensor = leaf.as<at::Tensor>();
    LOCKSTEP_CHECK_TYPE(tensor != nullptr, "[cache] a file can store tensors, numbers, texts and bytes only: found ",
                        describe(leaf), "; map it to those, or cache in memory");
    const bool dense_on_cpu =
        tensor->defined() && tensor->device().is_cpu() && tensor->layout() == at::kStrided && !tensor->is_quantized();
    LOCKSTEP_CHECK_VALUE(dense_on_cpu, "[cache] a file can store dense tensors on the CPU only: found ", describe(leaf),
                         "; cache before what moves or changes it, or cache in memory");
    const at::Tensor contiguous = tensor->detach().contiguous();
    dense(contiguous.scalar_type(), contiguous.sizes(),
          {static_cast<const char*>(contiguous.data_ptr()), contiguous.nbytes()});
  }

  void dense(at::ScalarType dtype, at::IntArrayRef sizes, std::string_view bytes) {
    put(Kind::Tensor);
    put(dtype);
    put(static_cast<uint32_t>(sizes.size()));
    for (const int64_t size : sizes) put(size);
    const size_t alignment = alignment_of(dtype, bytes.size());
    while ((offset_ + bytes_.size()) % alignment != 0) bytes_.push_back('\0');
    bytes_.append(bytes);
  }

  uint64_t offset_;
  std::string bytes_;
};

class RecordReader {
 public:
  RecordReader(const c10::intrusive_ptr<Buffer>& file, const CacheIndexEntry& entry, const std::string& path)
      : file_(file), path_(path), position_(entry.offset), end_(entry.offset + entry.size) {}

  template <class T>
  T get() {
    T value;
    std::memcpy(&value, bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view text() { return bytes(get<uint64_t>()); }

  std::shared_ptr<const Layout> layout() {
    const auto num_sizes = get<uint32_t>();
    if (num_sizes == kNoLayout) return nullptr;
    auto layout = std::make_shared<Layout>();
    for (uint32_t i = 0; i < num_sizes; ++i) layout->sizes.push_back(get<int64_t>());
    const auto num_keys = get<uint32_t>();
    for (uint32_t i = 0; i < num_keys; ++i) layout->keys.emplace_back(text());
    return layout;
  }

  Leaf leaf() {
    switch (get<Kind>()) {
      case Kind::Tensor:
        return dense();
      case Kind::Number: {
        const auto dtype = get<at::ScalarType>();
        return lockstep::data::Number{dtype, get<std::array<char, 8>>()};
      }
      case Kind::Bytes:
        return Bytes(file_, text());
      case Kind::List:
        return list();
    }
    fail("an unknown kind of value");
  }

  void finish() const {
    if (position_ != end_) fail("bytes left over");
  }

 private:
  Leaf dense() {
    const auto dtype = get<at::ScalarType>();
    const auto rank = get<uint32_t>();
    c10::SmallVector<int64_t, 5> sizes;
    for (uint32_t i = 0; i < rank; ++i) sizes.push_back(get<int64_t>());
    auto type = c10::make_intrusive<RowType>(dtype, sizes);
    const size_t alignment = alignment_of(dtype, type->num_bytes);
    bytes((alignment - position_ % alignment) % alignment);
    const size_t num_bytes = type->num_bytes;
    return Row{std::move(type), file_, bytes(num_bytes).data()};
  }

  Leaf list() {
    auto leaves = std::make_shared<std::vector<Leaf>>();
    for (auto left = get<uint64_t>(); left > 0; --left) leaves->push_back(leaf());
    return LeafList{std::move(leaves)};
  }

  std::string_view bytes(size_t count) {
    if (count > end_ - position_) fail("a value beyond the end of its record");
    const std::string_view found(file_->data() + position_, count);
    position_ += count;
    return found;
  }

  [[noreturn]] void fail(const std::string& what) const { fail_cache_file(path_, position_, what); }

  c10::intrusive_ptr<Buffer> file_;
  const std::string& path_;
  uint64_t position_;
  uint64_t end_;
};

}  // namespace

std::string cache_header(const std::string& description) {
  RecordWriter writer(0);
  writer.put(kCacheMagic);
  writer.put(kCacheVersion);
  writer.text(description);
  std::string header = writer.take();
  const uint32_t checksum = crc32c(header);
  header.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  return header;
}

std::string cache_record(const Element& element, uint64_t offset) {
  RecordWriter writer(offset);
  writer.layout(element.layout.get());
  writer.put(static_cast<uint32_t>(element.leaves.size()));
  for (const Leaf& leaf : element.leaves) {
    writer.leaf(leaf);
    if (any_bus_error()) check_read(leaf);
  }
  return writer.take();
}

void read_cache_record(const c10::intrusive_ptr<Buffer>& file, const CacheIndexEntry& entry, const std::string& path,
                       Element& element) {
  RecordReader reader(file, entry, path);
  element.clear();
  element.layout = reader.layout();
  for (auto left = reader.get<uint32_t>(); left > 0; --left) element.leaves.push_back(reader.leaf());
  reader.finish();
}

void fail_cache_file(const std::string& path, uint64_t offset, const std::string& what) {
  LOCKSTEP_THROW(DataError, "[cache] the file is damaged or was not written by a cache: file=\"", path,
                 "\", offset=", offset, " (", what, "); delete it");
}

}  // namespace lockstep::data::detail
