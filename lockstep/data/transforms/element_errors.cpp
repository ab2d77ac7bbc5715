#include "lockstep/data/transforms/element_errors.h"

#include <new>

namespace lockstep::data::detail {

bool is_of_an_element(const std::exception& error) {
  return dynamic_cast<const DatasetError*>(&error) == nullptr &&
         dynamic_cast<const InternalError*>(&error) == nullptr &&
         dynamic_cast<const ContextError*>(&error) == nullptr &&
         dynamic_cast<const CollectiveError*>(&error) == nullptr &&
         dynamic_cast<const c10::OutOfMemoryError*>(&error) == nullptr &&
         dynamic_cast<const std::bad_alloc*>(&error) == nullptr;
}

bool is_of_an_element(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return is_of_an_element(known);
  } catch (...) {
    return true;
  }
}

std::string text_of_error(const std::exception& error) {
  const auto* own = dynamic_cast<const c10::Error*>(&error);
  return own != nullptr ? own->what_without_backtrace() : error.what();
}

std::string text_of_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return text_of_error(known);
  } catch (...) {
    return "unknown exception";
  }
}

}  // namespace lockstep::data::detail
