#include <string>
#include <vector>

#include "tests/golden/compare.h"
#include "tests/golden/differences/topics.h"

namespace lockstep::golden::rules::variables {
namespace {

bool is_integer(const std::string& dtype) { return dtype.starts_with("int") || dtype.starts_with("uint"); }

bool leaves_remainder(const Case& c) {
  return c.call == "dtype" && c.text("strategy") == "Mirrored" && c.text("synchronization") == "ON_READ" &&
         c.text("aggregation") == "SUM" && c.text("then") == "assign 7 in scope" && is_integer(c.text("dtype"));
}

/// Seven in as many parts as there are copies, the first ones one larger.
Json parts_of_seven(const Case& c) {
  const int copies = c.in.at("replicas");
  Json parts = Json::array();
  for (int i = 0; i < copies; ++i) parts.push_back(7 / copies + (i < 7 % copies ? 1 : 0));
  return {{"copies", parts}, {"read", {{"dtype", c.text("dtype")}, {"shape", Json::array()}, {"data", {7}}}}};
}

double number_in(const std::string& operand) { return std::stod(operand.substr(operand.find(' ') + 1)); }

double written(const Case& c) {
  const double initial = c.in.at("initial");
  const double number = number_in(c.text("operand"));
  if (c.text("op") == "assign") return number;
  return c.text("op") == "assign_add" ? initial + number : initial - number;
}

bool is_outside(const Case& c) { return c.text("where") == "scope" || c.text("where") == "outside"; }

bool writes_copies_without_aggregation(const Case& c) {
  return c.text("strategy") == "Mirrored" && is_outside(c) && c.text("synchronization") == "ON_READ" &&
         c.text("aggregation") == "NONE" && c.text("operand").starts_with("literal ");
}

Json all_copies_written(const Case& c) {
  return {{"copies", std::vector<double>(c.in.at("replicas").get<size_t>(), written(c))}, {"returned", "Variable"}};
}

bool is_kept_once(const Case& c) { return c.text("strategy") == "CentralStorage" && c.in.at("replicas") > 1; }

/// Whether replicas that write the variable come together for it.
bool combines_writes(const Case& c) {
  const bool is_mirrored = c.text("strategy") == "Mirrored" && c.text("synchronization") == "ON_WRITE";
  return (is_mirrored || is_kept_once(c)) && (c.text("aggregation") == "SUM" || c.text("aggregation") == "MEAN");
}

bool writes_literal_zero(const Case& c) {
  return combines_writes(c) && c.text("where") == "replica" && c.text("operand").starts_with("literal 0");
}

Json zero_written(const Case& c) {
  const std::vector<double> copies(is_kept_once(c) ? 1 : c.in.at("replicas").get<size_t>(), written(c));
  return {{"copies", copies}, {"returned", copies}};
}

bool writes_several_values_to_one(const Case& c) {
  return is_kept_once(c) && is_outside(c) && c.text("operand").starts_with("per replica ");
}

Json same_with_variable_returned(const Case& c) {
  Json expected = c.out;
  expected["returned"] = "Variable";
  return expected;
}

}  // namespace

void add(std::vector<Difference>& table) {
  table.push_back({"remainder of an integer sum", "variables", leaves_remainder,
                   "gives every copy the same part and loses the remainder: 7 over two copies reads 6",
                   "the first copies get one more: 4 and 3, which read 7", "assigning 7 must read 7",
                   expect_value(parts_of_seven)});
  table.push_back({"copies without aggregation", "variables_write", writes_copies_without_aggregation,
                   "writes all copies, then fails because the result cannot be read as one value", "writes all copies",
                   "the write succeeds; reading the whole value fails when it is requested",
                   expect_value(all_copies_written)});
  table.push_back({"literal zero", "variables_write", writes_literal_zero,
                   "internal AttributeError, although zero is accepted", "adds nothing, or assigns zero",
                   "zero is the one number whose sum over replicas is known", expect_value(zero_written)});
  table.push_back(
      {"PerReplica value, variable stored once", "variables_write", writes_several_values_to_one,
       "CentralStorageStrategy uses the first replica's value and drops the others", "ValueError",
       "no data are lost; reduce the value first, or let the replicas assign it with the variable's aggregation",
       expect_error("ValueError", "cannot be written to a variable that is stored once")});
  table.push_back({"what assign returns", "variables_write", is_outside,
                   "one of three Python classes that all read as the new value",
                   "the variable, so that calls can be chained", "Python classes have no counterpart in C++",
                   expect_value(same_with_variable_returned)});
}

}  // namespace lockstep::golden::rules::variables
