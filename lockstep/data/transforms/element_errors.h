#pragma once

#include <exception>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::data::detail {

/// Internal: a dataset cannot be read. It says nothing about one element, so that `ignore_errors` hands it on.
class DatasetError : public DataError {
  using DataError::DataError;
};

/// Whether an error says something about an element. Others are of the dataset, of the program, of the job or of the
/// machine.
bool is_of_an_element(const std::exception& error);
bool is_of_an_element(const std::exception_ptr& error);

/// The message of an error, without a backtrace.
std::string text_of_error(const std::exception& error);
std::string text_of_error(const std::exception_ptr& error);

}  // namespace lockstep::data::detail
