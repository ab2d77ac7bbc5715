#include "lockstep/state/formats/pickle.h"

#include <bit>
#include <optional>
#include <unordered_map>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

constexpr size_t kMostValues = size_t{1} << 24;

/// Executes the opcodes of protocols 2 to 5 that data need.
class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const std::string& place, std::deque<PickleValue>& values)
      : bytes_(bytes), place_(place), values_(values) {}

  PickleRef run() {
    while (position_ < bytes_.size()) {
      const auto opcode = static_cast<unsigned char>(bytes_[position_++]);
      if (opcode == '.') {
        check(stack_.size() == 1 && marks_.empty(), "it ends too early");
        return stack_.back();
      }
      const bool known = execute_number(opcode) || execute_text(opcode) || execute_container(opcode) ||
                         execute_memo(opcode) || execute_call(opcode);
      if (!known) fail(c10::str("opcode ", static_cast<int>(opcode), " is not one of weights"));
    }
    fail("it is cut");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    LOCKSTEP_THROW(DataError, "[", place_, "] the pickle cannot be read: offset=", position_, ", ", what);
  }
  void check(bool condition, const char* what) const {
    if (!condition) [[unlikely]]
      fail(what);
  }

  std::string_view take(uint64_t count) {
    check(count <= bytes_.size() - position_, "it is cut");
    const std::string_view taken = bytes_.substr(position_, count);
    position_ += count;
    return taken;
  }
  uint64_t number(size_t count) {
    uint64_t value = 0;
    const std::string_view taken = take(count);
    for (size_t i = 0; i < count; ++i) {
      value |= static_cast<uint64_t>(static_cast<unsigned char>(taken[i])) << (8 * i);
    }
    return value;
  }
  std::string line() {
    const size_t end = bytes_.find('\n', position_);
    check(end != std::string_view::npos, "it is cut");
    std::string text(bytes_.substr(position_, end - position_));
    position_ = end + 1;
    return text;
  }

  template <class T>
  void push(T value) {
    check(values_.size() < kMostValues, "it has too many values");
    values_.push_back({std::move(value)});
    stack_.push_back(&values_.back());
  }
  PickleRef pop() {
    check(stack_.size() > (marks_.empty() ? 0 : marks_.back()), "a value is missing");
    const PickleRef value = stack_.back();
    stack_.pop_back();
    return value;
  }
  /// The values after the last mark.
  std::vector<PickleRef> pop_marked() {
    check(!marks_.empty(), "a mark is missing");
    const auto begin = stack_.begin() + static_cast<int64_t>(marks_.back());
    std::vector<PickleRef> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  template <class T>
  T& top_as(const char* what) {
    check(stack_.size() > (marks_.empty() ? 0 : marks_.back()), "a value is missing");
    // Values are made by this machine, and only const for those who read them.
    auto* const found = std::get_if<T>(&const_cast<PickleValue*>(stack_.back())->value);
    check(found != nullptr, what);
    return *found;
  }

  bool execute_number(unsigned char opcode);
  bool execute_text(unsigned char opcode);
  bool execute_container(unsigned char opcode);
  bool execute_memo(unsigned char opcode);
  bool execute_call(unsigned char opcode);

  int64_t long_number(uint64_t count);
  void remember(uint64_t key);
  void recall(uint64_t key);
  void tuple(size_t count);
  void set_items(const std::vector<PickleRef>& items);
  void persistent();
  void reduce();
  void rebuild_tensor(const std::vector<PickleRef>& arguments, bool typed);

  const PickleList& list_in(PickleRef value) const {
    const auto* const list = std::get_if<PickleList>(&value->value);
    check(list != nullptr, "a tuple is missing");
    return *list;
  }
  int64_t integer_in(PickleRef value) const {
    const auto* const integer = std::get_if<int64_t>(&value->value);
    check(integer != nullptr, "an integer is missing");
    return *integer;
  }
  std::vector<int64_t> integers_in(PickleRef value) const {
    std::vector<int64_t> numbers;
    for (const PickleRef item : list_in(value).items) numbers.push_back(integer_in(item));
    return numbers;
  }

  std::string_view bytes_;
  const std::string& place_;
  std::deque<PickleValue>& values_;
  size_t position_ = 0;
  std::vector<PickleRef> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleRef> memo_;
};

// A whole number of any length; those that are no int64 are refused.
int64_t PickleMachine::long_number(uint64_t count) {
  const std::string_view taken = take(count);
  const bool negative = !taken.empty() && (static_cast<unsigned char>(taken.back()) & 0x80) != 0;
  uint64_t value = negative ? ~uint64_t{0} : 0;
  for (size_t i = 0; i < taken.size(); ++i) {
    const auto byte = static_cast<unsigned char>(taken[i]);
    if (i >= 8) {
      check(byte == (negative ? 0xff : 0), "a number is too large");
    } else {
      value = (value & ~(uint64_t{0xff} << (8 * i))) | static_cast<uint64_t>(byte) << (8 * i);
    }
  }
  const auto number = static_cast<int64_t>(value);
  check((number < 0) == negative, "a number is too large");
  return number;
}

bool PickleMachine::execute_number(unsigned char opcode) {
  switch (opcode) {
    case 'N':
      push(PickleNone{});
      return true;
    case 0x88:
    case 0x89:
      push(opcode == 0x88);
      return true;
    case 'J':
      push(int64_t{static_cast<int32_t>(static_cast<uint32_t>(number(4)))});
      return true;
    case 'K':
      push(static_cast<int64_t>(number(1)));
      return true;
    case 'M':
      push(static_cast<int64_t>(number(2)));
      return true;
    case 0x8a:
    case 0x8b:
      push(long_number(number(opcode == 0x8a ? 1 : 4)));
      return true;
    case 'G': {
      uint64_t bits = 0;
      for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
      push(std::bit_cast<double>(bits));
      return true;
    }
    default:
      return false;
  }
}

bool PickleMachine::execute_text(unsigned char opcode) {
  switch (opcode) {
    case 'X':  // unicode, bytes, and texts of Python 2
    case 'B':
    case 'T':
      push(std::string(take(number(4))));
      return true;
    case 0x8c:
    case 'C':
    case 'U':
      push(std::string(take(number(1))));
      return true;
    case 0x8d:
    case 0x8e:
      push(std::string(take(number(8))));
      return true;
    default:
      return false;
  }
}

void PickleMachine::tuple(size_t count) {
  PickleList list;
  for (size_t i = 0; i < count; ++i) list.items.insert(list.items.begin(), pop());
  push(std::move(list));
}

void PickleMachine::set_items(const std::vector<PickleRef>& items) {
  check(items.size() % 2 == 0, "a value is missing");
  auto& dict = top_as<PickleDict>("a dictionary is missing");
  for (size_t i = 0; i < items.size(); i += 2) dict.items.emplace_back(items[i], items[i + 1]);
}

bool PickleMachine::execute_container(unsigned char opcode) {
  switch (opcode) {
    case '(':
      marks_.push_back(stack_.size());
      return true;
    case '}':
      push(PickleDict{});
      return true;
    case ']':
    case ')':
      push(PickleList{});
      return true;
    case 't':
    case 'l':
      push(PickleList{pop_marked()});
      return true;
    case 0x85:
    case 0x86:
    case 0x87:
      tuple(opcode - size_t{0x84});
      return true;
    case 'a':
    case 'e': {
      const std::vector<PickleRef> items = opcode == 'a' ? std::vector{pop()} : pop_marked();
      auto& list = top_as<PickleList>("a list is missing");
      list.items.insert(list.items.end(), items.begin(), items.end());
      return true;
    }
    case 's': {
      const PickleRef value = pop();
      const PickleRef key = pop();
      set_items({key, value});
      return true;
    }
    case 'u':
      set_items(pop_marked());
      return true;
    default:
      return false;
  }
}

void PickleMachine::remember(uint64_t key) {
  check(!stack_.empty(), "a value is missing");
  memo_[key] = stack_.back();
}

void PickleMachine::recall(uint64_t key) {
  const auto found = memo_.find(key);
  check(found != memo_.end(), "it refers to a value that is not there");
  check(stack_.size() < kMostValues, "it has too many values");
  stack_.push_back(found->second);
}

bool PickleMachine::execute_memo(unsigned char opcode) {
  switch (opcode) {
    case 0x80:
      check(number(1) <= 5, "its protocol is unknown");
      return true;
    case 0x95:
      number(8);
      return true;
    case 'q':
    case 'r':
      remember(number(opcode == 'q' ? 1 : 4));
      return true;
    case 0x94:
      remember(memo_.size());
      return true;
    case 'h':
    case 'j':
      recall(number(opcode == 'h' ? 1 : 4));
      return true;
    case '0':
      pop();
      return true;
    default:
      return false;
  }
}

// ('storage', torch.FloatStorage, '0', 'cpu', 12)
void PickleMachine::persistent() {
  const std::vector<PickleRef> items = list_in(pop()).items;
  check(items.size() >= 5, "a storage has fields");
  const auto* const kind = std::get_if<std::string>(&items[0]->value);
  const auto* const type = std::get_if<PickleGlobal>(&items[1]->value);
  const auto* const key = std::get_if<std::string>(&items[2]->value);
  check(kind != nullptr && *kind == "storage" && type != nullptr && key != nullptr, "a storage has fields");
  push(PickleStorage{type->name.substr(type->name.rfind('.') + 1), *key, integer_in(items[4])});
}

// (storage, offset, sizes, strides, requires_grad, hooks[, dtype][, metadata]), with dtype if `typed`
void PickleMachine::rebuild_tensor(const std::vector<PickleRef>& arguments, bool typed) {
  const size_t fields = typed ? 7 : 4;
  const size_t metadata_field = typed ? 7 : 6;
  check(arguments.size() >= fields, "a tensor has fields");
  const auto* const storage = std::get_if<PickleStorage>(&arguments[0]->value);
  check(storage != nullptr, "a tensor has a storage");
  PickleTensor tensor{*storage, "", integer_in(arguments[1]), integers_in(arguments[2]), integers_in(arguments[3])};
  if (typed) {
    const auto* const dtype = std::get_if<PickleGlobal>(&arguments[6]->value);
    check(dtype != nullptr, "a tensor has a dtype");
    tensor.dtype = dtype->name.substr(dtype->name.rfind('.') + 1);
  }
  check(tensor.sizes.size() == tensor.strides.size(), "sizes and strides of a tensor differ in number");
  // Conjugated and negated views say so there.
  if (arguments.size() > metadata_field && !std::holds_alternative<PickleNone>(arguments[metadata_field]->value)) {
    const auto* const metadata = std::get_if<PickleDict>(&arguments[metadata_field]->value);
    check(metadata != nullptr && metadata->items.empty(), "a tensor is a conjugated or negated view; save its clone()");
  }
  push(std::move(tensor));
}

void PickleMachine::reduce() {
  const std::vector<PickleRef> arguments = list_in(pop()).items;
  const PickleRef called = pop();
  const auto* const function = std::get_if<PickleGlobal>(&called->value);
  check(function != nullptr, "it calls something that is no function");
  const std::string name = function->name;
  if (name == "torch._utils._rebuild_tensor_v2") {
    rebuild_tensor(arguments, false);
  } else if (name == "torch._utils._rebuild_tensor_v3") {
    rebuild_tensor(arguments, true);
  } else if (name == "torch._utils._rebuild_parameter") {
    check(!arguments.empty() && std::holds_alternative<PickleTensor>(arguments[0]->value), "a parameter has a tensor");
    stack_.push_back(arguments[0]);
  } else if (name == "collections.OrderedDict" && arguments.empty()) {
    push(PickleDict{});
  } else if (name == "torch.Size" && arguments.size() == 1) {
    push(PickleList{list_in(arguments[0]).items});
  } else {
    fail("class or function " + name + " is not one of weights; save state_dict()");
  }
}

bool PickleMachine::execute_call(unsigned char opcode) {
  switch (opcode) {
    case 'c': {
      const std::string module = line();
      push(PickleGlobal{module + "." + line()});
      return true;
    }
    case 0x93: {
      const PickleRef name = pop();
      const PickleRef module = pop();
      const auto* const name_text = std::get_if<std::string>(&name->value);
      const auto* const module_text = std::get_if<std::string>(&module->value);
      check(name_text != nullptr && module_text != nullptr, "the name of a class is missing");
      push(PickleGlobal{*module_text + "." + *name_text});
      return true;
    }
    case 'Q':
      persistent();
      return true;
    case 'R':
      reduce();
      return true;
    case 0x81: {
      pop();
      const PickleRef type = pop();
      const auto* const name = std::get_if<PickleGlobal>(&type->value);
      check(name != nullptr, "the name of a class is missing");
      fail("class " + name->name + " is not one of weights; save state_dict()");
    }
    case 'b':  // attributes of a dictionary: versions of modules
      pop();
      top_as<PickleDict>("it sets attributes of something that is no dictionary");
      return true;
    default:
      return false;
  }
}

}  // namespace

Pickle::Pickle(std::string_view bytes, const std::string& place) { top_ = PickleMachine(bytes, place, values_).run(); }

}  // namespace lockstep::detail
